// The pipeline's bubble: how long ranks had nothing to compute between the pipeline's first section of a step and its
// last, against the closed formulas of cost/pipeline.h for the schedule. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tracepp/breakdown.h"
#include "tracepp/matching.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

enum class PipelineSchedule : std::uint8_t { one_f_one_b, interleaved, zb_h1 };
std::string_view to_string(PipelineSchedule schedule);  // "1f1b"

// Means of a rank and step, in seconds; computing + communication + bubble is the window.
struct StageBubble {
  int stage = 0;
  std::size_t rank_steps = 0;  // that these are means of
  // From the first forward of the pipeline (the ranks of one dp and tp rank) to its last backward, on all its ranks.
  double window_s = 0;
  double computing_s = 0;  // in forwards and backwards
  // Nothing computed, and there was a transfer over pp, or between the rank's own first and last section a message over
  // another axis while no transfer over pp was waited for.
  double communication_s = 0;
  double bubble_s = 0;
};

struct Bubble {
  std::string unknown;  // why there is nothing below: "one stage"; empty: there is
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int stages = 0, chunks = 0, microbatches = 0;
  // Of a microbatch through a full stage, mean over stages, ranks and steps. Of zb-h1 backward is both halves.
  double forward_s = 0, backward_s = 0, backward_weight_s = 0;
  double measured_s = 0, expected_s = 0;  // of a rank and step
  double measured_of_computing = 0, expected_of_computing = 0;
  std::vector<StageBubble> by_stage;
};

// 1F1B where a rank has one chunk, interleaved where it has several, zb-h1 where the backward is split. Times of all
// ranks must be on one clock.
Bubble measure_bubble(const RunTrace& trace, const Matches& matches, const Breakdown& breakdown);

}  // namespace ms::tracepp
