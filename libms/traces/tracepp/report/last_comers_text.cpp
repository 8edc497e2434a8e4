// Implements last_comers_text and last_comers_json of last_comers.h.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/text.h"
#include "tracepp/findings/last_comers.h"
#include "tracepp/gaps.h"
#include "tracepp/report/json.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

// Returns the ranks that were traced, those for which others wait longest first.
std::vector<std::size_t> by_caused(const CommReport& comms) {
  std::vector<std::size_t> ranks(comms.by_rank.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  std::ranges::stable_sort(ranks, std::ranges::greater{}, [&](std::size_t r) { return comms.by_rank[r].caused_ns; });
  return ranks;
}

// Returns the ranks whose traces are cut off: only what is there is compared.
std::vector<int> cut_ranks(const RunTrace& trace) {
  std::vector<int> cut;
  for (const RankTrace& rank : trace.ranks)
    if (rank.is_cut_off) cut.push_back(rank.rank);
  return cut;
}

}  // namespace

std::string last_comers_text(const RunTrace& trace, const Breakdown& breakdown, const CommReport& comms,
                             const std::optional<Finding>& found) {
  std::string text;
  // Whoever was not traced may be the one that all others wait for.
  const auto untraced = std::max<std::int64_t>(find_gaps(trace).world - std::ssize(trace.ranks), 0);
  const std::vector<int> cut = cut_ranks(trace);
  const std::string first =
      !found
          ? fmt::format("no {}rank{} comes last to collectives so often, or costs others so much, that it stands out{}",
                        untraced > 0 ? "traced " : "", cut.empty() ? "" : " whose trace is whole",
                        untraced > 0 ? fmt::format("; {} of {} ranks have no trace, and what they do is not known",
                                                   untraced, find_gaps(trace).world)
                                     : "")
          : fmt::format("{}{}{} (confidence {:.0f} %)", found->evidence,
                        found->doubt.empty() ? "" : "; in doubt: ", found->doubt, 100 * found->confidence);
  for (const std::string& line : lines_of(first, 100)) text += line + "\n";
  if (!cut.empty())
    text += fmt::format("{} of {} traces are cut off, and compared only as far as they go (rank {}{})\n", cut.size(),
                        trace.ranks.size(), cut.front(), cut.size() > 1 ? " and others" : "");
  constexpr std::size_t kShown = 20;
  TextTable table(columns("rank|last to>|of>|others wait ms a step>|waits itself>|computes>|idle>"));
  const std::vector<std::size_t> latest = by_caused(comms);
  for (std::size_t i = 0; i < std::min(latest.size(), kShown); ++i) {
    const std::size_t r = latest[i];
    const Lateness& late = comms.by_rank[r];
    const StepTime sum = sum_of(breakdown.of_rank(r));
    const auto ms = [&](std::int64_t ns) {
      return fmt::format("{:.3f}", 1e3 * seconds(ns) / static_cast<double>(breakdown.of_rank(r).size()));
    };
    if (breakdown.of_rank(r).empty()) continue;
    table.row({rank_text(trace, r), std::to_string(late.last), std::to_string(late.collectives), ms(late.caused_ns),
               ms(late.waited_ns), ms(sum.busy_ns), ms(sum.idle_ns)});
  }
  text += "\n" + table.str();
  if (latest.size() > kShown) text += fmt::format("and {} more ranks\n", latest.size() - kShown);
  return text;
}

Json last_comers_json(const RunTrace& trace, const Breakdown& breakdown, const CommReport& comms,
                      const std::optional<Finding>& found) {
  Json json{{"schema", 1}, {"suspects", Json::array()}, {"findings", Json::array()}, {"by_rank", Json::array()}};
  if (found) {
    json["findings"].push_back(finding_json(*found));
    const auto rank = static_cast<std::size_t>(trace.rank(found->ranks[0]) - trace.ranks.data());
    json["suspects"].push_back(rank_json(trace, rank));
  }
  const std::int64_t world = find_gaps(trace).world;
  json["untraced_ranks"] = world > 0 ? Json(std::max<std::int64_t>(world - std::ssize(trace.ranks), 0)) : Json();
  json["cut_off_ranks"] = cut_ranks(trace);
  json["mesh"] = trace.has_mesh ? Json{{"dp", trace.mesh.dp}, {"pp", trace.mesh.pp}, {"tp", trace.mesh.tp}} : Json();
  json["mesh_why"] = trace.mesh_why;
  for (const std::size_t r : by_caused(comms)) {
    const Lateness& late = comms.by_rank[r];
    const StepTime sum = sum_of(breakdown.of_rank(r));
    Json row = rank_json(trace, r);
    row.update({{"collectives", late.collectives},
                {"last", late.last},
                {"steps", breakdown.of_rank(r).size()},
                {"caused_s", seconds(late.caused_ns)},
                {"waited_s", seconds(late.waited_ns)},
                {"busy_s", seconds(sum.busy_ns)},
                {"idle_s", seconds(sum.idle_ns)}});
    json["by_rank"].push_back(std::move(row));
  }
  return json;
}

}  // namespace ms::tracepp
