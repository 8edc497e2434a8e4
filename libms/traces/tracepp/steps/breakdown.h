// Splits the time of every step on every rank: computing, stalled, waiting for communication by axis, copying, waiting
// for data or for a save, idle. Overlapping intervals are united, so every nanosecond of a step is counted exactly
// once. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// The communication of one axis within a step.
struct AxisTime {
  std::int64_t total_ns = 0;    // some communication was in flight
  std::int64_t exposed_ns = 0;  // and the compute lane did not compute meanwhile
  // Its part of the step: exposed, and not already counted for an axis before it in kWaitOrder.
  std::int64_t waiting_ns = 0;
  // Returns the part of the total that was hidden under computing; 1 if there was nothing to hide.
  double overlap() const {
    return total_ns == 0 ? 1 : 1 - static_cast<double>(exposed_ns) / static_cast<double>(total_ns);
  }
  bool operator==(const AxisTime&) const = default;
};

// The axis that the compute lane is taken to wait for if several axes communicate at once: the first of these. The next
// section needs what comes over tp and pp; gradients and norms are communicated in the background.
inline constexpr std::array kWaitOrder{GroupAxis::tp, GroupAxis::pp, GroupAxis::dp, GroupAxis::world, GroupAxis::other};

// One step of one rank, or a sum of several. busy + stalled_other + waiting of all axes + copy + save + data_wait +
// idle is the step's length.
struct StepTime {
  std::int32_t step = kNoStep;
  std::int64_t begin_ns = 0, length_ns = 0;
  std::int64_t busy_ns = 0;           // the device computed
  std::int64_t stalled_ns = 0;        // within sections, but it did not: all of it,
  std::int64_t stalled_other_ns = 0;  // the same without what tp collectives inside the sections explain
  std::array<AxisTime, trace::kGroupAxes> axes;
  std::int64_t copy_ns = 0;  // the device only copied or set memory
  // The rest, by what the host waited for meanwhile: a save, data, nothing that is known.
  std::int64_t save_ns = 0, data_wait_ns = 0, idle_ns = 0;

  const AxisTime& axis(GroupAxis axis) const { return axes[static_cast<std::size_t>(axis)]; }
  bool operator==(const StepTime&) const = default;
};

struct KindOfWork {
  Kind kind = Kind::other;
  Purpose purpose = Purpose::none;
  bool operator==(const KindOfWork&) const = default;
};

struct KindTime {
  std::int64_t time_ns = 0;  // some event of it was in flight, within finished steps
  std::uint64_t events = 0;
};

struct Breakdown {
  std::vector<StepTime> steps;        // by rank, then step
  std::vector<std::size_t> first_of;  // [rank's index, and one more]: the steps of r are [r, r + 1)
  std::vector<KindOfWork> kinds;      // that occur in the trace, by number; Kind::step is not one of them
  std::vector<KindTime> kind_times;   // [rank's index][kind]

  std::span<const StepTime> of_rank(std::size_t rank) const {
    return std::span(steps).subspan(first_of[rank], first_of[rank + 1] - first_of[rank]);
  }
  std::span<const KindTime> kinds_of_rank(std::size_t rank) const {
    return std::span(kind_times).subspan(rank * kinds.size(), kinds.size());
  }
};

Breakdown break_down(const RunTrace& trace);

// Returns the sum of all fields; step and begin_ns are meaningless.
StepTime sum_of(std::span<const StepTime> steps);

}  // namespace ms::tracepp
