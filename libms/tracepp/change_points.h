// When a run became slower or faster, by how much, and which rank or kind of work changed with it; single slow steps
// apart from that. Of all steps that the trace knows, also those of which only sums are left. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tracepp/breakdown.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Parts of a step on one rank that are followed over time. The first three a rank owes to itself; the others may wait
// for somebody else, or for each other, so they do not add up.
enum class StepPart : std::uint8_t { busy, data_wait, save, stalled, tp, dp, pp, other_messages };
inline constexpr int kStepParts = 8;
inline constexpr int kOwnParts = 3;
std::string_view to_string(StepPart part);

struct PartChange {
  StepPart part = StepPart::busy;
  double before_s = 0, after_s = 0;
};

struct RankChange {
  std::uint32_t rank = 0;  // index
  PartChange change;
};

// From one step on the step time is another one.
struct ChangePoint {
  std::int32_t step = kNoStep;  // the first at the new level
  double before_s = 0, after_s = 0;
  // Ranks with a part of their own that changed alike, by a quarter of the step's change or more and far more than on
  // other ranks; the largest first. Empty where all ranks changed, or what changed is between them.
  std::vector<RankChange> ranks;
  PartChange usual;  // what changed most on the median rank
};

struct Pause {
  std::int32_t step = kNoStep;
  double step_s = 0, usual_s = 0;
  // Where the most of it shows as a part of a rank's own: usual, and in this step. Of no rank where it shows nowhere.
  bool has_rank = false;
  RankChange at;
};

// A rank's computing against that of the median rank of its stage, so that work that changes from step to step for all
// does not show.
struct RankShift {
  std::uint32_t rank = 0;  // index
  std::int32_t step = kNoStep;
  double before = 0, after = 0;  // 1: as fast as the others
};

struct ChangePoints {
  std::vector<std::int32_t> steps;
  std::vector<double> step_s;  // of each: the median rank's
  bool long_enough = false;    // for anything to be told but pauses
  std::vector<ChangePoint> points;
  std::vector<Pause> pauses;
  std::vector<RankShift> rank_shifts;  // the largest change first
};

ChangePoints find_change_points(const RunTrace& trace, const Breakdown& breakdown);

}  // namespace ms::tracepp
