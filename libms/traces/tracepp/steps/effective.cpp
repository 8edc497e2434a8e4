#include "tracepp/steps/effective.h"

#include <algorithm>
#include <map>

#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

struct Extent {
  std::int64_t begin_ns = 0, end_ns = 0;
};

// By number: from the issue of a step to its end, as the host saw it; where it did not tell, as the events show it.
std::map<std::int64_t, Extent> steps_of(const RunTrace& trace, const Breakdown& breakdown, std::size_t rank) {
  std::map<std::int64_t, Extent> steps;
  for (const StepTime& time : breakdown.of_rank(rank))
    steps[time.step] = {time.begin_ns, time.begin_ns + time.length_ns};
  for (const StepSum& sum : trace.ranks[rank].sums) steps[sum.step] = {sum.begin_ns, sum.end_ns};
  for (const Event& event : trace.ranks[rank].events)
    if (event.state == State::ended && trace.info(event).kind == Kind::step)
      steps[event.step] = {event.begin_ns, event.end_ns()};
  return steps;
}

// The events of a kind, of which those of a host do not overlap each other; asked for one gap after the other.
class Waits {
 public:
  void add(const Event& event) { waits_.push_back({event.begin_ns, event.end_ns()}); }
  void sort() {
    std::ranges::sort(waits_, {}, &Extent::begin_ns);
    for (std::size_t i = 1; i < waits_.size(); ++i)  // should they overlap nevertheless
      waits_[i].begin_ns = std::max(waits_[i].begin_ns, waits_[i - 1].end_ns),
      waits_[i].end_ns = std::max(waits_[i].end_ns, waits_[i].begin_ns);
  }
  // The time that they take of it.
  std::int64_t time_of(const Extent& gap) {
    std::int64_t sum = 0;
    while (next_ < waits_.size() && waits_[next_].end_ns <= gap.begin_ns) ++next_;
    for (std::size_t i = next_; i < waits_.size() && waits_[i].begin_ns < gap.end_ns; ++i) {
      sum += std::max<std::int64_t>(std::min(waits_[i].end_ns, gap.end_ns) - std::max(waits_[i].begin_ns, gap.begin_ns),
                                    0);
    }
    return sum;
  }

 private:
  std::vector<Extent> waits_;  // by begin
  std::size_t next_ = 0;       // those before it ended before the gap that was asked for last
};

}  // namespace

Effective measure_effective(const RunTrace& trace, const Breakdown& breakdown) {
  Effective found;
  std::map<std::int64_t, Extent> steps;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    if (std::max(trace.ranks[r].sums.size(), breakdown.of_rank(r).size()) <= steps.size()) continue;
    steps = steps_of(trace, breakdown, r);
    found.rank = static_cast<std::uint32_t>(r);
  }
  if (steps.empty()) return found;
  Waits saves, waits;
  for (const Event& event : trace.ranks[found.rank].events) {
    if (event.state != State::ended) continue;
    if (trace.info(event).kind == Kind::save) saves.add(event);
    if (trace.info(event).kind == Kind::data_wait) waits.add(event);
  }
  saves.sort();
  waits.sort();

  std::int64_t until_ns = steps.begin()->second.begin_ns, in_steps_ns = 0, save_ns = 0, wait_ns = 0, gaps_ns = 0;
  std::int64_t before = steps.begin()->first - 1;
  std::vector<double> lengths_s;
  for (const auto& [number, extent] : steps) {
    const Extent gap{until_ns, std::max(until_ns, extent.begin_ns)};
    if (gap.begin_ns < gap.end_ns) {
      const std::int64_t saved_ns = saves.time_of(gap);
      const std::int64_t waited_ns = std::min(waits.time_of(gap), gap.end_ns - gap.begin_ns - saved_ns);
      save_ns += saved_ns;
      wait_ns += waited_ns;
      gaps_ns += gap.end_ns - gap.begin_ns - saved_ns - waited_ns;
    }
    found.missing_steps += static_cast<std::uint64_t>(number - before - 1);
    // The host runs ahead: what overlaps the step before it is that one's.
    in_steps_ns += std::max<std::int64_t>(extent.end_ns - gap.end_ns, 0);
    const bool follows = found.steps > 0 && number == before + 1;
    lengths_s.push_back(seconds(extent.end_ns - (follows ? until_ns : extent.begin_ns)));
    ++found.steps;
    until_ns = std::max(until_ns, extent.end_ns);
    before = number;
  }
  found.median_step_s = median(lengths_s);
  found.in_steps_s = seconds(in_steps_ns);
  found.save_s = seconds(save_ns);
  found.data_wait_s = seconds(wait_ns);
  found.other_gaps_s = seconds(gaps_ns);
  const std::int64_t wall_ns = until_ns - steps.begin()->second.begin_ns;
  found.wall_s = seconds(wall_ns);
  if (wall_ns > 0) found.effective = static_cast<double>(in_steps_ns) / static_cast<double>(wall_ns);
  const auto ranks =
      static_cast<double>(trace.has_mesh ? static_cast<std::size_t>(trace.mesh.size()) : trace.ranks.size());
  const double flops = trace.flops_per_step, peak = trace.peak_flops * ranks;
  if (flops > 0 && peak > 0 && found.median_step_s > 0) {
    found.mfu = flops / (found.median_step_s * peak);
    found.mfu_of_wall = flops * static_cast<double>(found.steps) / (found.wall_s * peak);
  }
  return found;
}

}  // namespace ms::tracepp
