// Implements marks_of and choose_timeline of page.h.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tracepp/page/page.h"

namespace ms::tracepp {
namespace {

bool is_all(const ExportOptions& asked) {
  return asked.ranks.empty() && asked.first_step == ExportOptions{}.first_step &&
         asked.last_step == ExportOptions{}.last_step;
}

// Returns the ranks that tell most, the most important first.
std::vector<int> ranks_to_show(const RunTrace& trace, const std::vector<Mark>& marks) {
  std::vector<int> ranks;
  const auto add = [&](int rank) {
    if (ranks.size() < kMostRanks && trace.rank(rank) != nullptr && std::ranges::find(ranks, rank) == ranks.end())
      ranks.push_back(rank);
  };
  for (const Mark& mark : marks) add(mark.rank);
  if (trace.has_mesh) {
    const mesh::Mesh& mesh = trace.mesh;
    const int centre = marks.empty() ? trace.ranks.front().rank : marks.front().rank;
    for (const mesh::Axis axis : {mesh::Axis::pp, mesh::Axis::dp, mesh::Axis::tp}) {
      constexpr int kNeighbours = 8;  // of an axis
      const std::vector<int> along = mesh.along(axis, centre);
      const auto at = std::ranges::find(along, centre) - along.begin();
      const auto begin = std::max<std::ptrdiff_t>(0, at - kNeighbours / 2);
      for (auto i = begin; i < std::ssize(along) && i < begin + kNeighbours; ++i)
        add(along[static_cast<std::size_t>(i)]);
    }
  }
  for (const RankTrace& rank : trace.ranks) add(rank.rank);
  return ranks;
}

// Returns the steps around `centre` that have at most kMostEvents events on these ranks.
std::pair<std::int32_t, std::int32_t> steps_to_show(const RunTrace& trace, const ExportOptions& shown,
                                                    std::int64_t centre) {
  std::map<std::int32_t, std::size_t> counts;
  for (const RankTrace& rank : trace.ranks) {
    if (!shown.has_rank(rank.rank)) continue;
    for (const Event& event : rank.events) ++counts[event.step];
  }
  counts.erase(kNoStep);
  if (counts.empty()) return {shown.first_step, shown.last_step};
  auto first = counts.lower_bound(static_cast<std::int32_t>(centre));
  if (centre == kNoStep || first == counts.end()) first = std::prev(counts.end());
  auto last = first;
  std::size_t events = first->second;
  while (true) {
    const bool has_before = first != counts.begin() && events + std::prev(first)->second <= kMostEvents;
    if (has_before) events += (--first)->second;
    const bool has_after = std::next(last) != counts.end() && events + std::next(last)->second <= kMostEvents;
    if (has_after) events += (++last)->second;
    if (!has_before && !has_after) return {first->first, last->first};
  }
}

}  // namespace

std::vector<Mark> marks_of(const Analysis& analysis) {
  std::vector<Mark> marks;
  const auto add = [&](int rank, std::string why, std::int64_t step) {
    if (marks.size() < kMostMarks && std::ranges::find(marks, rank, &Mark::rank) == marks.end())
      marks.push_back({.rank = rank, .why = std::move(why), .first_step = step});
  };
  for (const HangSuspect& suspect : analysis.hang.suspects)
    add(suspect.rank, fmt::format("{}: {}", to_string(analysis.hang.state), to_string(suspect.reason)), kNoStep);
  if (analysis.last_comer)
    for (const int rank : analysis.last_comer->ranks) add(rank, "comes last to collectives", kNoStep);
  if (!analysis.diagnosis) return marks;
  for (const Finding& finding : analysis.diagnosis->findings) {
    if (!is_fault(finding)) continue;
    for (const int rank : finding.ranks) add(rank, std::string(to_string(finding.code)), finding.first_step);
  }
  return marks;
}

ExportOptions choose_timeline(const RunTrace& trace, const std::vector<Mark>& marks, const ExportOptions& asked) {
  if (trace.ranks.empty() || !is_all(asked)) return asked;
  if (trace.ranks.size() <= kMostRanks && trace.event_count() <= kMostEvents) return asked;
  ExportOptions shown;
  shown.ranks = ranks_to_show(trace, marks);
  std::tie(shown.first_step, shown.last_step) =
      steps_to_show(trace, shown, marks.empty() ? kNoStep : marks.front().first_step);
  return shown;
}

}  // namespace ms::tracepp
