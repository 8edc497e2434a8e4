// Finds when a run became slower or faster, by how much, and which rank or kind of work changed with it; single slow
// steps are separate. Covers all steps of the trace, also those of which only sums are left. Pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tracepp/run_trace.h"
#include "tracepp/steps/breakdown.h"

namespace ms::tracepp {

// The parts of a step on one rank that are followed over time. The first three are the rank's own; in the others it may
// wait for other ranks, so they do not add up.
enum class StepPart : std::uint8_t { busy, data_wait, save, stalled, tp, dp, pp, other_comms };
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

// The step from which on steps take another time.
struct ChangePoint {
  std::int32_t step = kNoStep;  // the first at the new level
  double before_s = 0, after_s = 0;
  // Ranks with an own part that changed in the same direction, by a quarter of the step's change or more and far more
  // than on other ranks; the largest first. Empty if all ranks changed, or if the change is in the communication
  // between them.
  std::vector<RankChange> ranks;
  PartChange usual;  // the largest change on the median rank
};

struct Pause {
  std::int32_t step = kNoStep;
  double step_s = 0, usual_s = 0;
  // The largest part of it that is a rank's own: usual, and in this step. No rank if no own part shows it.
  bool has_rank = false;
  RankChange at;
};

// A rank's computing relative to the median rank of its stage, so that changes of the work that are common to all ranks
// do not show.
struct RankShift {
  std::uint32_t rank = 0;  // index
  std::int32_t step = kNoStep;
  double before = 0, after = 0;  // 1: as fast as the others
};

struct ChangePoints {
  std::vector<std::int32_t> steps;
  std::vector<double> step_s;  // of each: the median rank's
  bool long_enough = false;    // for any result besides pauses
  std::vector<ChangePoint> points;
  std::vector<Pause> pauses;
  std::vector<RankShift> rank_shifts;  // the largest change first
};

ChangePoints find_change_points(const RunTrace& trace, const Breakdown& breakdown);

}  // namespace ms::tracepp
