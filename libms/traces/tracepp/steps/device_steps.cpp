// Implements device_paths of device_paths.h: when steps begin and end, and the sums over their paths.
#include <algorithm>
#include <functional>
#include <limits>
#include <map>

#include "tracepp/steps/device_paths.h"
#include "tracepp/steps/steps.h"

namespace ms::tracepp {
namespace {

// A step on one rank: its host's part, and the work that it launched.
struct WorkStep {
  std::int64_t begin_ns = std::numeric_limits<std::int64_t>::max(), end_ns = std::numeric_limits<std::int64_t>::min();
  std::uint32_t rank = 0, work = kAbsentEvent;  // that ends last; kAbsentEvent: the main thread does
};

std::map<std::int32_t, WorkStep> steps_of(const RunTrace& trace, const std::vector<RankPaths>& paths) {
  std::map<std::int32_t, WorkStep> steps;
  for (std::uint32_t r = 0; r < trace.ranks.size(); ++r) {
    const RankTrace& rank = trace.ranks[r];
    std::map<std::int32_t, WorkStep> own;
    for (const StepSpan& span : step_spans(rank, trace.infos))
      own[span.step] = {.begin_ns = span.begin_ns, .end_ns = span.end_ns, .rank = r, .work = kAbsentEvent};
    for (const std::uint32_t work : paths[r].work) {
      const std::uint32_t call = paths[r].call[work];
      const auto step = own.find(rank.events[call == kAbsentEvent ? work : call].step);
      if (step == own.end() || rank.events[work].end_ns() <= step->second.end_ns) continue;
      step->second.end_ns = rank.events[work].end_ns();
      step->second.work = work;
    }
    for (const auto& [number, step] : own) {
      const auto [place, is_new] = steps.try_emplace(number, step);
      if (is_new) continue;
      const std::int64_t begin_ns = std::min(place->second.begin_ns, step.begin_ns);
      if (step.end_ns > place->second.end_ns) place->second = step;
      place->second.begin_ns = begin_ns;
    }
  }
  std::int64_t ended_ns = std::numeric_limits<std::int64_t>::min();
  std::int32_t before = kNoStep;
  for (auto& [number, step] : steps) {
    const bool follows = before != kNoStep && before + 1 == number;
    step.begin_ns = std::min(follows ? ended_ns : std::max(step.begin_ns, ended_ns), step.end_ns);
    ended_ns = std::max(ended_ns, step.end_ns);
    before = number;
  }
  return steps;
}

void sum_up(DevicePaths& paths) {
  std::map<PathWork, std::map<std::uint32_t, std::int64_t>> work;
  std::map<PathWork, std::uint64_t> pieces;
  std::map<std::uint32_t, std::int64_t> ranks;
  for (const DevicePath& step : paths.steps) {
    paths.time_ns += step.end_ns - step.begin_ns;
    for (const DevicePiece& piece : step.pieces) {
      work[piece.work][piece.rank] += piece.end_ns - piece.begin_ns;
      ranks[piece.rank] += piece.end_ns - piece.begin_ns;
      ++pieces[piece.work];
    }
  }
  for (const auto& [of, by_rank] : work) {
    PathTime& time = paths.by_work.emplace_back(PathTime{.work = of, .pieces = pieces[of]});
    for (const auto& [rank, ns] : by_rank) {
      time.time_ns += ns;
      if (ns <= time.most_ns) continue;
      time.most_ns = ns;
      time.most_rank = rank;
    }
  }
  for (const auto& [rank, ns] : ranks) paths.by_rank.push_back({rank, ns});
  std::ranges::stable_sort(paths.by_work, std::greater<>{}, &PathTime::time_ns);
  std::ranges::stable_sort(paths.by_rank, std::greater<>{}, &PathRank::time_ns);
  std::ranges::stable_sort(paths.moves, std::greater<>{}, &PathMove::waited_ns);
}

}  // namespace

DevicePaths device_paths(const RunTrace& trace, const Matches& matches) {
  DevicePaths paths;
  if (trace.ranks.size() > 1 && !matches.tie_ranks()) {
    paths.unknown = "no communication of two ranks could be matched";
    return paths;
  }
  const std::vector<HostRole> roles = host_roles(trace);
  const std::vector<RankPaths> ranks = lay_out_paths(trace, roles);
  if (ranks.empty()) {
    paths.unknown = "the trace does not record the host";
    return paths;
  }
  PathWalk walk(trace, matches, ranks);
  for (const auto& [number, step] : steps_of(trace, ranks)) {
    paths.steps.push_back(
        {number, step.begin_ns, step.end_ns, walk.to_end(step.rank, step.work, step.begin_ns, step.end_ns)});
  }
  paths.moves = walk.moves();
  sum_up(paths);
  return paths;
}

}  // namespace ms::tracepp
