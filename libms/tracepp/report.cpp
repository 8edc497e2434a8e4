#include "tracepp/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "tracepp/report_json.h"
#include "tracepp/report_text.h"

namespace ms::tracepp {
namespace {

using Json = nlohmann::ordered_json;

// What-if analysis of steps, or why there is none: traces of other programs need not have such steps.
void find_verdict(const RunTrace& trace, Analysis& analysis) {
  try {
    analysis.verdict = find_suspects(trace);
  } catch (const Error& error) {
    if (error.kind() != "trace.shape") throw;
    analysis.no_verdict = error.message();
  }
}

std::pair<std::int64_t, std::int64_t> step_range(const RunTrace& trace) {
  std::int64_t first = -1, last = -1;
  for (const RankTrace& rank : trace.ranks) {
    for (const Event& event : rank.events) {
      if (event.step < 0) continue;
      first = first < 0 ? event.step : std::min<std::int64_t>(first, event.step);
      last = std::max<std::int64_t>(last, event.step);
    }
  }
  return {first, last};
}

std::size_t host_count(const RunTrace& trace) {
  std::set<std::string_view> hosts;
  for (const RankTrace& rank : trace.ranks) hosts.insert(rank.host);
  return hosts.size();
}

std::string mesh_text(const RunTrace& trace) {
  if (!trace.has_mesh) return "not known";
  return fmt::format("dp {} x pp {} x tp {}", trace.mesh.dp, trace.mesh.pp, trace.mesh.tp);
}

std::string endings_text(const RunTrace& trace) {
  std::map<std::string, std::size_t> counts;
  for (const RankTrace& rank : trace.ranks) {
    std::string how = rank.ending == Ending::done      ? "done"
                      : rank.ending == Ending::running ? "not ended"
                      : rank.ending == Ending::failed  ? fmt::format("failed: {}", plain_text(rank.ending_text, 160))
                                                       : "not known";
    ++counts[std::move(how)];
  }
  std::string text;
  std::size_t told = 0;
  for (const auto& [how, count] : counts) {
    if (told++ == 4) return text + fmt::format("ended         {} more ways\n", counts.size() - 4);
    text += fmt::format("ended         {}: {}\n", plural(count, "rank"), how);
  }
  return text;
}

std::uint64_t dropped(const RunTrace& trace) {
  std::uint64_t sum = 0;
  for (const RankTrace& rank : trace.ranks) sum += rank.dropped;
  return sum;
}

Json clocks_json(const Alignment& clocks) {
  Json hosts = Json::array();
  for (const HostClock& clock : clocks.hosts) {
    hosts.push_back({{"host", clock.host},
                     {"first_rank", clock.first_rank},
                     {"ranks", clock.ranks},
                     {"source", to_string(clock.source)},
                     {"offset_ns", clock.offset_ns},
                     {"drift_ppm", clock.drift_ppm},
                     {"bound_ns", clock.bound_ns}});
  }
  const auto spread = [](const Spread& of) {
    return Json{{"p50_ns", of.p50_ns}, {"p99_ns", of.p99_ns}, {"max_ns", of.max_ns}, {"ends", of.ends}};
  };
  return {{"trusted", clocks.trusted},
          {"doubt", clocks.doubt},
          {"before", spread(clocks.before)},
          {"after", spread(clocks.after)},
          {"hosts", hosts}};
}

}  // namespace

Analysis analyse(RunTrace& trace) {
  Analysis analysis;
  analysis.matches = match_messages(trace);
  // Reads each rank's own clock only.
  analysis.hang = find_hang(trace);
  find_verdict(trace, analysis);
  analysis.clocks = align(trace, analysis.matches);
  analysis.breakdown = break_down(trace);
  analysis.messages = measure_messages(trace, analysis.matches);
  analysis.bubble = measure_bubble(trace, analysis.matches, analysis.breakdown);
  analysis.paths = critical_paths(trace, analysis.matches, analysis.breakdown);
  analysis.changes = find_change_points(trace, analysis.breakdown);
  analysis.effective = measure_effective(trace, analysis.breakdown);
  return analysis;
}

std::string info_text(const RunTrace& trace) {
  const auto [first, last] = step_range(trace);
  std::string text = fmt::format("source        {}\n", trace.source);
  if (!trace.run.empty()) text += fmt::format("run           {}\n", plain_text(trace.run, 100));
  text += fmt::format("mesh          {}\n", mesh_text(trace));
  text += fmt::format("ranks         {} of {}, on {}\n", trace.ranks.size(),
                      trace.has_mesh ? std::to_string(trace.mesh.size()) : "?", plural(host_count(trace), "host"));
  text += fmt::format("events        {}\n", trace.event_count());
  if (first >= 0) text += fmt::format("steps         {} to {}, with all their events\n", first, last);
  if (!trace.ranks.empty() && !trace.ranks.front().sums.empty()) {
    text += fmt::format("sums          of steps {} to {}\n", trace.ranks.front().sums.front().step,
                        trace.ranks.front().sums.back().step);
  }
  text += endings_text(trace);
  if (dropped(trace) > 0)
    text += fmt::format("lost          {} events found no room when they happened\n", dropped(trace));
  for (const auto& [problem, count] : trace.problems) {
    text += fmt::format("not used      {}: {}\n", plain_text(problem, 100), count);
  }
  return text;
}

std::string info_json(const RunTrace& trace) {
  const auto [first, last] = step_range(trace);
  Json json{
      {"schema", 1},
      {"source", trace.source},
      {"run", trace.run},
      {"mesh", trace.has_mesh ? Json{{"dp", trace.mesh.dp}, {"pp", trace.mesh.pp}, {"tp", trace.mesh.tp}} : Json()},
      {"ranks", trace.ranks.size()},
      {"hosts", host_count(trace)},
      {"events", trace.event_count()},
      {"first_step", first},
      {"last_step", last},
      {"dropped", dropped(trace)},
      {"problems", Json::object()}};
  for (const auto& [problem, count] : trace.problems) json["problems"][problem] = count;
  return dump(json);
}

std::string clocks_text(const Alignment& clocks) {
  if (clocks.hosts.size() < 2) return "clocks        one host, one clock\n";
  std::map<std::string_view, std::size_t> sources;
  for (const HostClock& clock : clocks.hosts) ++sources[to_string(clock.source)];
  std::string text = fmt::format("clocks        of {} hosts, compared by", clocks.hosts.size());
  for (const auto& [source, count] : sources) {
    if (source != to_string(ClockSource::root)) text += fmt::format(" {} ({})", source, count);
  }
  text += fmt::format(
      "\nends          of one operation lie {:.1f} us apart (p99 {:.1f} us); before {:.1f} us (p99 {:.1f} us)\n",
      static_cast<double>(clocks.after.p50_ns) * 1e-3, static_cast<double>(clocks.after.p99_ns) * 1e-3,
      static_cast<double>(clocks.before.p50_ns) * 1e-3, static_cast<double>(clocks.before.p99_ns) * 1e-3);
  if (!clocks.trusted)
    text += fmt::format("beware        times of different hosts cannot be compared: {}\n", clocks.doubt);
  return text;
}

std::string report_text(const RunTrace& trace, const Analysis& analysis) {
  std::string text = info_text(trace) + clocks_text(analysis.clocks) + "\n";
  text += effective_text(analysis.effective) + "\n";
  text += breakdown_text(trace, analysis.breakdown) + "\n";
  const std::vector<Advice> first = look_first(trace, analysis);
  if (first.empty()) {
    text += "Nothing stands out: no rank, link or pause that costs a hundredth of the time.\n";
  } else {
    text += "Look first at\n";
    for (std::size_t i = 0; i < first.size(); ++i) {
      const std::vector<std::string> lines = wrap(first[i].sentence, 100);
      for (std::size_t l = 0; l < lines.size(); ++l) {
        text += l == 0 ? fmt::format("  {}. {}\n", i + 1, lines[l]) : fmt::format("     {}\n", lines[l]);
      }
      if (!first[i].hint.empty()) text += fmt::format("     hint: {}\n", first[i].hint);
    }
  }
  if (!analysis.no_verdict.empty()) {
    text +=
        fmt::format("\nNo search for slow ranks by playing steps again: {}.\n", plain_text(analysis.no_verdict, 300));
  }
  return text;
}

std::string report_json(const RunTrace& trace, const Analysis& analysis) {
  Json json{{"schema", 1}, {"info", Json::parse(info_json(trace))}, {"clocks", clocks_json(analysis.clocks)}};
  json["look_first"] = Json::array();
  for (const Advice& advice : look_first(trace, analysis)) {
    json["look_first"].push_back(
        {{"cost_share", advice.cost_share}, {"sentence", advice.sentence}, {"hint", advice.hint}});
  }
  json["effective"] = effective_json(trace, analysis.effective);
  json["breakdown"] = breakdown_json(trace, analysis.breakdown);
  json["bubble"] = bubble_json(analysis.bubble);
  json["messages"] = messages_json(trace, analysis.messages);
  json["critical_path"] = critical_path_json(trace, analysis.paths);
  json["change_points"] = change_points_json(trace, analysis.changes);
  json["hang"] = Json::parse(hang_json(analysis.hang, trace));
  return dump(json);
}

}  // namespace ms::tracepp
