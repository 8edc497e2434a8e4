// Implements device_paths_text, path_work_text and exposed_text of text.h, and their documents of json.h.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "tracepp/report/json.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

constexpr std::size_t kMostWork = 12, kMostWorkJson = 100, kMostPathRanks = 8;

double ms_of(std::int64_t ns) { return 1e-6 * static_cast<double>(ns); }
double part_of(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

std::string path_work_text(const RunTrace& trace, const PathWork& work) {
  const std::string where = place_text(trace, work.place);
  const std::string name = plain_text(trace.strings.text(work.name), 80);
  switch (work.of) {
    case PathOf::launch: return where.empty() ? "" : "in " + where;
    case PathOf::unknown:
      return work.place.cause == IdleCause::queued ? "queued, and the trace does not show what it waits for" : name;
    case PathOf::host:
      if (where.empty()) return "nothing recorded: with_stack=True shows what it does";
      return HostThreads::is_cause(work.place) || work.place.cause == IdleCause::synchronises
                 ? fmt::format("{}: {}", to_string(work.place.cause), where)
                 : where;
    case PathOf::communication:
    case PathOf::unsplit:
      return work.group < 0 ? name
                            : fmt::format("{} of {}", name,
                                          plain_text(trace.groups[static_cast<std::size_t>(work.group)].name, 60));
    default: return name;
  }
}

std::string device_paths_text(const RunTrace& trace, const DevicePaths& paths) {
  if (paths.time_ns == 0) return "no finished step\n";
  const double steps = static_cast<double>(paths.steps.size());
  const auto ms = [&](std::int64_t ns) { return fmt::format("{:.3f}", ms_of(ns) / steps); };
  const auto percent = [&](std::int64_t ns) { return fmt::format("{:.1f}%", 100 * part_of(ns, paths.time_ns)); };
  TextTable table(columns("on the critical path|what|ms a step>|share>|most on rank>"));
  std::int64_t shown_ns = 0;
  for (std::size_t i = 0; i < std::min(paths.by_work.size(), kMostWork); ++i) {
    const PathTime& time = paths.by_work[i];
    table.row({std::string(to_string(time.work.of)), path_work_text(trace, time.work), ms(time.time_ns),
               percent(time.time_ns), std::to_string(trace.ranks[time.most_rank].rank)});
    shown_ns += time.time_ns;
  }
  if (paths.by_work.size() > kMostWork)
    table.row({fmt::format("{} more", paths.by_work.size() - kMostWork), "", ms(paths.time_ns - shown_ns),
               percent(paths.time_ns - shown_ns), ""});
  table.row({"all", "", ms(paths.time_ns), percent(paths.time_ns), ""});
  std::string text = table.str();
  if (trace.ranks.size() < 2) return text;
  TextTable ranks(columns("rank|on the path ms a step>|share>"));
  for (std::size_t i = 0; i < std::min(paths.by_rank.size(), kMostPathRanks); ++i)
    ranks.row(
        {rank_text(trace, paths.by_rank[i].rank), ms(paths.by_rank[i].time_ns), percent(paths.by_rank[i].time_ns)});
  text += "\n" + ranks.str();
  if (paths.by_rank.size() > kMostPathRanks)
    text += fmt::format("and {} more ranks\n", paths.by_rank.size() - kMostPathRanks);
  if (paths.moves.empty()) return text;
  TextTable moves(columns("rank>|waits for rank>|ms a step>|collectives>"));
  for (std::size_t i = 0; i < std::min(paths.moves.size(), kMostPathRanks); ++i) {
    const PathMove& move = paths.moves[i];
    moves.row({std::to_string(trace.ranks[move.from].rank), std::to_string(trace.ranks[move.to].rank),
               ms(move.waited_ns), std::to_string(move.times)});
  }
  return text + "\n" + moves.str();
}

Json path_work_json(const RunTrace& trace, const PathWork& work) {
  const auto text = [&](std::uint32_t id) { return id == 0 ? Json(nullptr) : Json(trace.strings.text(id)); };
  Json json{{"of", to_string(work.of)}, {"name", text(work.name)}};
  if (work.group >= 0) json["group"] = trace.groups[static_cast<std::size_t>(work.group)].name;
  if (work.of != PathOf::host && work.of != PathOf::launch) return json;
  json.update({{"cause", to_string(work.place.cause)},
               {"op", text(work.place.op)},
               {"call", text(work.place.call)},
               {"below", text(work.place.below)},
               {"line", text(work.place.line)}});
  return json;
}

Json device_paths_json(const RunTrace& trace, const DevicePaths& paths) {
  if (!paths.unknown.empty()) return {{"known", false}, {"why", paths.unknown}};
  Json json{{"known", true}, {"steps", Json::array()}, {"ms", ms_of(paths.time_ns)}};
  for (const DevicePath& step : paths.steps) {
    json["steps"].push_back({{"step", step.step == kNoStep ? Json(nullptr) : Json(step.step)},
                             {"ms", ms_of(step.end_ns - step.begin_ns)},
                             {"pieces", step.pieces.size()}});
  }
  Json& rows = json["by_work"] = Json::array();
  std::int64_t left_ns = paths.time_ns;
  for (std::size_t i = 0; i < std::min(paths.by_work.size(), kMostWorkJson); ++i) {
    const PathTime& time = paths.by_work[i];
    Json row = path_work_json(trace, time.work);
    row.update({{"ms", ms_of(time.time_ns)},
                {"share", part_of(time.time_ns, paths.time_ns)},
                {"pieces", time.pieces},
                {"most_rank", trace.ranks[time.most_rank].rank},
                {"most_ms", ms_of(time.most_ns)}});
    rows.push_back(std::move(row));
    left_ns -= time.time_ns;
  }
  json["other_ms"] = ms_of(left_ns);
  Json& ranks = json["by_rank"] = Json::array();
  for (const PathRank& rank : paths.by_rank) {
    Json row = rank_json(trace, rank.rank);
    row.update({{"ms", ms_of(rank.time_ns)}, {"share", part_of(rank.time_ns, paths.time_ns)}});
    ranks.push_back(std::move(row));
  }
  Json& moves = json["moves"] = Json::array();
  for (const PathMove& move : paths.moves) {
    moves.push_back({{"rank", trace.ranks[move.from].rank},
                     {"waits_for", trace.ranks[move.to].rank},
                     {"ms", ms_of(move.waited_ns)},
                     {"collectives", move.times}});
  }
  return json;
}

std::string exposed_text(const RunTrace& trace, const std::vector<ExposedComm>& exposed) {
  if (exposed.empty()) return {};
  TextTable table(columns("communication|group|operations>|ms>|exposed>|hidden>"));
  for (std::size_t i = 0; i < std::min(exposed.size(), kMostWork); ++i) {
    const ExposedComm& of = exposed[i];
    table.row({std::string(trace::to_string(of.kind)),
               of.group < 0 ? "-" : plain_text(trace.groups[static_cast<std::size_t>(of.group)].name, 60),
               std::to_string(of.operations), fmt::format("{:.3f}", ms_of(of.total_ns)),
               fmt::format("{:.3f}", ms_of(of.exposed_ns)),
               fmt::format("{:.1f}%", 100 * (1 - part_of(of.exposed_ns, of.total_ns)))});
  }
  return "\n" + table.str();
}

Json exposed_json(const RunTrace& trace, const std::vector<ExposedComm>& exposed) {
  Json rows = Json::array();
  for (const ExposedComm& of : exposed) {
    rows.push_back(
        {{"kind", trace::to_string(of.kind)},
         {"group", of.group < 0 ? Json(nullptr) : Json(trace.groups[static_cast<std::size_t>(of.group)].name)},
         {"operations", of.operations},
         {"ms", ms_of(of.total_ns)},
         {"exposed_ms", ms_of(of.exposed_ns)}});
  }
  return rows;
}

}  // namespace ms::tracepp
