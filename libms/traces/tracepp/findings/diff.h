// Compares two runs: how much longer a step takes in the second one, which parts of a step make the difference, and
// which kinds of work, communication and ranks changed. Pure.
#pragma once

#include <string>
#include <vector>

#include "tracepp/run_trace.h"
#include "tracepp/steps/breakdown.h"
#include "tracepp/steps/communication.h"

namespace ms::tracepp {

// A run with its analyses.
struct Analysed {
  const RunTrace& trace;
  const Breakdown& breakdown;
  const CommReport& comms;
};

struct BeforeAfter {
  double before = 0, after = 0;
  double change() const { return after - before; }
};

struct PartDiff {
  std::string part;  // "busy", "stalled", "waiting for pp", "copying", "save", "data wait", "idle"
  BeforeAfter s;     // mean of a rank and step
};

struct KindDiff {
  KindOfWork work;
  BeforeAfter s;  // mean of a rank and step
};

struct AxisDiff {
  GroupAxis axis = GroupAxis::other;
  BeforeAfter total_s, exposed_s;  // mean of a rank and step
};

// Communication of one class that both runs have; medians over its groups.
struct CommDiff {
  CommClass of_class;
  BeforeAfter transfer_s, bus_bandwidth;
};

struct RankDiff {
  int rank = 0;        // its number
  BeforeAfter busy_s;  // mean of a step
  double ratio = 1;    // after / before, over the median of all ranks' after / before
};

struct Diff {
  // Why the numbers below are not comparable: "the mesh differs: dp 2 pp 2 tp 1, dp 4 pp 1 tp 1". Empty: they are.
  std::vector<std::string> not_comparable;
  BeforeAfter median_step_s, mean_step_s;
  std::vector<PartDiff> parts;  // parts that add up to the mean step; the largest change first
  std::vector<AxisDiff> axes;   // axes with communication in either run
  std::vector<KindDiff> kinds;  // the largest change first
  std::vector<CommDiff> comms;  // the largest change of the transfer first, as a ratio
  std::vector<RankDiff> ranks;  // traced in both, the one that changed most against the others first
};

// Leaves out all numbers if one of the runs has no steps: nothing tells then how much of a run its trace covers.
Diff compare(const Analysed& before, const Analysed& after);

}  // namespace ms::tracepp
