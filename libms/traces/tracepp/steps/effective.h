// Measures how much of the machine and of the time a run used: model FLOPs utilisation, and the part of the time from
// its first step to its last that went into steps. Pure.
#pragma once

#include <cstdint>

#include "tracepp/run_trace.h"
#include "tracepp/steps/breakdown.h"

namespace ms::tracepp {

struct Effective {
  std::uint32_t rank = 0;   // index of the rank whose steps are counted: the first of those with the most steps
  std::uint64_t steps = 0;  // finished ones
  double median_step_s = 0;
  // The time from the begin of the first step to the end of the last: in steps, and between them, while the host waited
  // for a save, for data, or did anything else, such as restart or validate. These add up to the wall time.
  double wall_s = 0, in_steps_s = 0, save_s = 0, data_wait_s = 0, other_gaps_s = 0;
  // Steps that are missing in between; their time is in other_gaps_s.
  std::uint64_t missing_steps = 0;
  double effective = 0;  // in_steps_s / wall_s
  // MFU over the device time of all ranks, from the FLOPs of a step that the run reported: in the median step, and over
  // the whole wall time. 0: not known, because FLOPs or peak are not known.
  double mfu = 0, mfu_of_wall = 0;
};

Effective measure_effective(const RunTrace& trace, const Breakdown& breakdown);

}  // namespace ms::tracepp
