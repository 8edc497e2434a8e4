// Measures the pipeline's bubble: how long ranks had nothing to compute between the pipeline's first section of a step
// and its last. Compares it with the closed formula of the schedule (sched/registry.h). Pure.
#pragma once

#include <string>
#include <vector>

#include "sched/registry.h"
#include "tracepp/matching.h"
#include "tracepp/run_trace.h"
#include "tracepp/steps/breakdown.h"

namespace ms::tracepp {

// Means of a rank and step, in seconds; computing + communication + bubble is the window.
struct StageBubble {
  int stage = 0;
  std::size_t rank_steps = 0;  // the number of samples behind the means
  // From the first forward of the pipeline (the ranks of one dp and tp rank) to its last backward, on all its ranks.
  double window_s = 0;
  double computing_s = 0;  // in forwards and backwards
  // Nothing computed, and a transfer over pp was in flight; or, between the rank's own first and last section,
  // communication over another axis while no transfer over pp was waited for.
  double communication_s = 0;
  double bubble_s = 0;
};

struct Bubble {
  std::string unknown;  // why there is no result: "one stage"; empty: there is one
  const sched::ScheduleKind* schedule = nullptr;
  int stages = 0, chunks = 0;
  int microbatches = 0;  // of a step after the ramp-up; the times are of as many as each step has
  // Time of a microbatch through a full stage, mean over stages, ranks and steps. A split backward counts as both
  // halves.
  double forward_s = 0, backward_s = 0, backward_weight_s = 0;
  double measured_s = 0, expected_s = 0;  // of a rank and step
  double measured_of_computing = 0, expected_of_computing = 0;
  std::vector<StageBubble> by_stage;
};

// Requires the times of all ranks to be on one clock. The trace does not name the schedule: it is taken for the first
// registered one with the same number of chunks, and with a split backward or not, as in the trace.
Bubble measure_bubble(const RunTrace& trace, const Matches& matches, const Breakdown& breakdown);

}  // namespace ms::tracepp
