#include "tracepp/steps/bubble.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <mutex>

#include "base/error.h"
#include "tracepp/parallel.h"

namespace ms::tracepp {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();

bool is_of_pipeline(const EventInfo& info) {
  return info.kind >= Kind::forward && info.kind <= Kind::backward_weight && info.purpose != Purpose::evaluation;
}

struct IdleInterval {
  std::int64_t begin_ns = 0, end_ns = 0;
};

// The reasons for time in which nothing computed. Transfers over pp count as communication. Waiting for one is the
// bubble, whatever else is under way, and so is time in which nothing is.
enum IdleReason : std::size_t { kTransfer, kWaiting, kOther, kIdleReasons };

// One rank and step. Intervals by begin.
struct RankStep {
  std::vector<IdleInterval> sections;
  std::array<std::vector<IdleInterval>, kIdleReasons> comms;
  std::array<std::int64_t, trace::kKinds> time_ns{};  // of sections, by kind
  int microbatches = 0;                               // 0: not known
};

// Returns the time that the union of the intervals covers within the window. Sorts the intervals.
std::int64_t united(std::vector<IdleInterval>& intervals, const IdleInterval& window) {
  std::ranges::sort(intervals, {}, &IdleInterval::begin_ns);
  std::int64_t until = window.begin_ns, sum = 0;
  for (const IdleInterval& interval : intervals) {
    const std::int64_t begin = std::max(interval.begin_ns, until), end = std::min(interval.end_ns, window.end_ns);
    if (begin >= end) continue;
    sum += end - begin;
    until = end;
  }
  return sum;
}

// Sums over ranks, in whole nanoseconds, so that they do not depend on the order in which threads add.
struct StageSums {
  std::size_t rank_steps = 0;
  std::int64_t window_ns = 0, computing_ns = 0, communication_ns = 0;
  std::array<std::int64_t, trace::kKinds> time_ns{};
  std::map<int, std::size_t> by_microbatches;  // rank_steps; fewer microbatches than in others while the batch grows

  void add(const StageSums& other) {
    rank_steps += other.rank_steps;
    for (const auto& [microbatches, count] : other.by_microbatches) by_microbatches[microbatches] += count;
    window_ns += other.window_ns;
    computing_ns += other.computing_ns;
    communication_ns += other.communication_ns;
    for (std::size_t k = 0; k < time_ns.size(); ++k) time_ns[k] += other.time_ns[k];
  }
};

class Pipelines {
 public:
  Pipelines(const RunTrace& trace, const Matches& matches, const Breakdown& breakdown)
      : trace_(trace), matches_(matches), breakdown_(breakdown) {
    for (const ProcessGroup& group : trace.groups) axes_.push_back(group.axis);
  }

  // The ranks (indices) of one dp and tp rank.
  void measure(const std::vector<std::size_t>& column, std::vector<StageSums>& sums) const {
    std::map<std::int32_t, std::vector<RankStep>> steps;  // that all of them finished
    for (std::size_t i = 0; i < column.size(); ++i) {
      for (const StepTime& step : breakdown_.of_rank(column[i])) {
        std::vector<RankStep>& of_step = steps[step.step];
        if (of_step.size() == i) of_step.emplace_back();
      }
    }
    std::erase_if(steps, [&](const auto& step) { return step.second.size() != column.size(); });
    for (std::size_t i = 0; i < column.size(); ++i) collect(column[i], i, steps);
    for (auto& [number, ranks] : steps) {
      IdleInterval window{std::numeric_limits<std::int64_t>::max(), kNever};
      for (const RankStep& rank : ranks) {
        for (const IdleInterval& section : rank.sections) {
          window.begin_ns = std::min(window.begin_ns, section.begin_ns);
          window.end_ns = std::max(window.end_ns, section.end_ns);
        }
      }
      if (window.begin_ns >= window.end_ns) continue;
      for (std::size_t i = 0; i < column.size(); ++i)
        measure(ranks[i], window, sums[static_cast<std::size_t>(trace_.ranks[column[i]].at.pp)]);
    }
  }

 private:
  void collect(std::size_t rank, std::size_t place, std::map<std::int32_t, std::vector<RankStep>>& steps) const {
    RankStep* now = nullptr;
    std::int32_t step = kNoStep;
    for (const Event& event : trace_.ranks[rank].events) {
      if (event.state != State::ended) continue;
      if (now == nullptr || event.step != step) {
        const auto found = steps.find(event.step);
        step = event.step;
        now = found == steps.end() ? nullptr : &found->second[place];
      }
      if (now == nullptr) continue;
      const EventInfo& info = trace_.info(event);
      if (is_of_pipeline(info)) {
        now->sections.push_back({event.begin_ns, event.end_ns()});
        now->time_ns[static_cast<std::size_t>(info.kind)] += event.duration_ns;
        if (event.microbatch != kNoMicrobatch) now->microbatches = std::max(now->microbatches, event.microbatch + 1);
      } else if (trace::is_comm(info.kind) && info.group >= 0) {
        add_comm(event, info, *now);
      }
    }
  }

  void add_comm(const Event& event, const EventInfo& info, RankStep& step) const {
    const GroupAxis axis = axes_[static_cast<std::size_t>(info.group)];
    const bool serves_section = info.purpose == Purpose::forward || info.purpose == Purpose::backward;
    if (axis == GroupAxis::tp && serves_section) return;  // inside it
    if (axis != GroupAxis::pp || !serves_section) {
      step.comms[kOther].push_back({event.begin_ns, event.end_ns()});
      return;
    }
    if (info.kind == Kind::send) return;  // no rank waits for its own sends
    std::int64_t both_ns = event.begin_ns;
    const std::uint32_t operation = matches_.find(info.group, event.detail);
    if (operation != Matches::kNone) {
      for (const Member& member : matches_.members_of(operation)) {
        const Event& other = event_of(trace_, member);
        if (other.state != State::issued) both_ns = std::max(both_ns, other.begin_ns);
      }
    }
    both_ns = std::min(both_ns, event.end_ns());
    step.comms[kTransfer].push_back({both_ns, event.end_ns()});
    step.comms[kWaiting].push_back({event.begin_ns, both_ns});
  }

  void measure(RankStep& rank, const IdleInterval& window, StageSums& sums) const {
    // Before its first section and after its last one a rank waits for the pipeline, whatever else it gathers or
    // reduces meanwhile.
    IdleInterval own{window.end_ns, window.begin_ns};
    for (const IdleInterval& section : rank.sections)
      own = {std::min(own.begin_ns, section.begin_ns), std::max(own.end_ns, section.end_ns)};
    for (IdleInterval& other : rank.comms[kOther])
      other = {std::max(other.begin_ns, own.begin_ns), std::min(other.end_ns, own.end_ns)};
    // Each reason gets the time that sections and transfers of all reasons so far cover, less what the earlier ones
    // cover.
    std::vector<IdleInterval> covering = rank.sections;
    const std::int64_t computing_ns = united(covering, window);
    std::int64_t told_ns = computing_ns;
    std::array<std::int64_t, kIdleReasons> alone{};
    for (std::size_t reason = 0; reason < kIdleReasons; ++reason) {
      covering.insert(covering.end(), rank.comms[reason].begin(), rank.comms[reason].end());
      const std::int64_t together_ns = united(covering, window);
      alone[reason] = together_ns - told_ns;
      told_ns = together_ns;
    }
    ++sums.rank_steps;
    ++sums.by_microbatches[rank.microbatches > 0 ? rank.microbatches : trace_.microbatches];
    sums.window_ns += window.end_ns - window.begin_ns;
    sums.computing_ns += computing_ns;
    sums.communication_ns += alone[kTransfer] + alone[kOther];
    for (std::size_t k = 0; k < sums.time_ns.size(); ++k) sums.time_ns[k] += rank.time_ns[k];
  }

  const RunTrace& trace_;
  const Matches& matches_;
  const Breakdown& breakdown_;
  std::vector<GroupAxis> axes_;  // of groups
};

// Returns the first registered schedule that splits the backward or not, as the trace does; one that takes this number
// of chunks is preferred.
const sched::ScheduleKind* schedule_of(int chunks, bool splits_backward) {
  const sched::ScheduleKind* found = nullptr;
  for (const sched::ScheduleKind* kind : sched::schedule_kinds()) {
    if (kind->splits_backward != splits_backward) continue;
    if (found == nullptr || (kind->takes(chunks) && !found->takes(chunks))) found = kind;
  }
  MS_ASSERT(found != nullptr, "no schedule is registered");
  return found;
}

// Computes the bubble that the schedule's formula predicts from the mean times of the sections.
void expect(const StageSums& all, Bubble& bubble) {
  double passes = 0;  // of microbatches, on all ranks
  for (const auto& [microbatches, count] : all.by_microbatches)
    passes += static_cast<double>(microbatches) * static_cast<double>(count);
  const auto mean_s = [&](Kind kind) {
    return 1e-9 * static_cast<double>(all.time_ns[static_cast<std::size_t>(kind)]) / passes;
  };
  bubble.forward_s = mean_s(Kind::forward);
  bubble.backward_weight_s = mean_s(Kind::backward_weight);
  bubble.backward_s = mean_s(Kind::backward) + mean_s(Kind::backward_input) + bubble.backward_weight_s;
  const double both_s = bubble.forward_s + bubble.backward_s;
  if (both_s > 0) {
    const sched::Times times{.forward = bubble.forward_s,
                             .backward = bubble.backward_s,
                             .weight_share = bubble.backward_s > 0 ? bubble.backward_weight_s / bubble.backward_s : 0};
    for (const auto& [microbatches, count] : all.by_microbatches) {
      const sched::Shape shape{.pp = bubble.stages, .chunks = bubble.chunks, .microbatches = microbatches};
      bubble.expected_s += std::max(0.0, bubble.schedule->bubble(shape, times)) * static_cast<double>(count) /
                           static_cast<double>(all.rank_steps);
    }
    bubble.expected_of_computing = bubble.expected_s * static_cast<double>(all.rank_steps) / (passes * both_s);
  }
}

}  // namespace

Bubble measure_bubble(const RunTrace& trace, const Matches& matches, const Breakdown& breakdown) {
  Bubble bubble;
  const auto unknown = [&](const char* why) {
    bubble.unknown = why;
    return bubble;
  };
  if (!trace.has_mesh) return unknown("the mesh is not known");
  if (trace.mesh.pp == 1) return unknown("one stage");
  std::map<std::pair<int, int>, std::vector<std::size_t>> by_column;  // by dp and tp
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    const mesh::Coord& at = trace.ranks[r].at;
    if (at.pp >= 0 && at.pp < trace.mesh.pp) by_column[{at.dp, at.tp}].push_back(r);
  }
  std::vector<const std::vector<std::size_t>*> columns;
  for (const auto& [where, column] : by_column)
    if (std::ssize(column) == trace.mesh.pp) columns.push_back(&column);
  if (columns.empty()) return unknown("of no pipeline all stages were traced");

  const auto stages = static_cast<std::size_t>(trace.mesh.pp);
  std::vector<StageSums> sums(stages);
  const Pipelines pipelines(trace, matches, breakdown);
  std::mutex mutex;  // guards sums
  in_blocks(columns.size(), [&](std::size_t begin, std::size_t end) {
    std::vector<StageSums> of_block(stages);
    for (std::size_t c = begin; c < end; ++c) pipelines.measure(*columns[c], of_block);
    const std::lock_guard lock(mutex);
    for (std::size_t s = 0; s < stages; ++s) sums[s].add(of_block[s]);
  });
  StageSums all;
  for (const StageSums& stage : sums) all.add(stage);
  if (all.rank_steps == 0) return unknown("no finished step has forwards and backwards on all stages");

  bubble.stages = trace.mesh.pp;
  bubble.chunks = std::max(trace.chunks, 1);
  bubble.microbatches = trace.microbatches;
  for (const EventInfo& info : trace.infos)
    if (is_of_pipeline(info)) bubble.chunks = std::max(bubble.chunks, info.chunk + 1);
  if (bubble.microbatches <= 0) return unknown("the number of microbatches is not known");
  bubble.schedule = schedule_of(bubble.chunks, all.time_ns[static_cast<std::size_t>(Kind::backward_weight)] > 0);
  expect(all, bubble);
  const auto mean_s = [](std::int64_t sum_ns, const StageSums& of) {
    return 1e-9 * static_cast<double>(sum_ns) / static_cast<double>(of.rank_steps);
  };
  for (std::size_t s = 0; s < stages; ++s) {
    StageBubble stage{.stage = static_cast<int>(s), .rank_steps = sums[s].rank_steps};
    stage.window_s = mean_s(sums[s].window_ns, sums[s]);
    stage.computing_s = mean_s(sums[s].computing_ns, sums[s]);
    stage.communication_s = mean_s(sums[s].communication_ns, sums[s]);
    stage.bubble_s = mean_s(sums[s].window_ns - sums[s].computing_ns - sums[s].communication_ns, sums[s]);
    bubble.by_stage.push_back(stage);
  }
  bubble.measured_s = mean_s(all.window_ns - all.computing_ns - all.communication_ns, all);
  if (all.computing_ns > 0) bubble.measured_of_computing = bubble.measured_s / mean_s(all.computing_ns, all);
  return bubble;
}

}  // namespace ms::tracepp
