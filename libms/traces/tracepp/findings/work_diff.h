// Compares what two runs execute, for traces that record the host (Kineto): the critical path, whose parts add up to
// the step, then kernels, operators and Python lines, each per step. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tracepp/findings/diff.h"
#include "tracepp/run_trace.h"
#include "tracepp/steps/device_paths.h"

namespace ms::tracepp {

// The events with one name, in all steps of all ranks.
struct WorkTotal {
  std::uint64_t calls = 0;
  std::int64_t time_ns = 0;
  double flops = 0;  // of operators with shapes
};

// The work of one run. Names are texts, and lines are without their numbers: code that moved is the same code.
struct WorkTotals {
  std::string unknown;                            // why there are none; empty: there are
  std::size_t steps = 0, rank_steps = 0;          // of the run; of all ranks together
  std::map<std::string, WorkTotal> kernels = {};  // and copies
  std::map<std::string, WorkTotal> ops = {};      // with the time on the device of all that they launch
  std::map<std::string, WorkTotal> lines = {};    // the innermost of the user, the same
  std::map<std::string, std::string> above = {};  // operators: the operator around the first of them
  std::map<std::pair<std::string, std::string>, std::map<int, std::int64_t>> path = {};  // class, name: ns by rank
};
// Returns class and name of a part of a path.
std::pair<std::string, std::string> path_key(const RunTrace& trace, const PathWork& work);
WorkTotals work_totals(const RunTrace& trace, const DevicePaths& paths, std::size_t rank_steps);
// Adds the kernels, operators and lines of some ranks, by their indices. To compare ranks of `one_run`: lines keep
// their numbers, and communication is left out.
void add_work(const RunTrace& trace, std::span<const std::size_t> ranks, bool one_run, WorkTotals& totals);

// A part of the critical path: "data", "enumerate(DataLoader)".
struct PathDiff {
  std::string of, name;
  BeforeAfter ms;  // of a step
  int rank = -1;   // that has most of it, in the run that has more
};
struct NameDiff {
  std::string name = {};
  BeforeAfter calls = {}, ms = {};  // of a step of a rank
  bool vanished() const { return calls.before > 0 && calls.after == 0; }
  bool appeared() const { return calls.before == 0 && calls.after > 0; }
};
// An operator calls another one than it did.
struct OpSwap {
  std::string above;
  NameDiff before = {}, after = {};
  double change_ms() const { return after.ms.after - before.ms.before; }
};

struct WorkDiff {
  std::string unknown;                 // why nothing is compared; empty: it is
  BeforeAfter step_ms = {};            // as long as the critical path: until the work of a step has ended
  std::vector<PathDiff> classes = {};  // the path by class alone; their changes add up to the step's. The largest first
  std::vector<PathDiff> path = {};     // by class and name, the same
  double unattributed_ms = 0;          // the part of the change of which the traces do not show what it was
  std::vector<OpSwap> swaps = {};      // the largest change of time first, as below
  std::vector<NameDiff> kernels = {}, ops = {}, lines = {};
};
// Returns the names of both, the largest change of time first.
std::vector<NameDiff> compare_names(const std::map<std::string, WorkTotal>& before, std::size_t steps_before,
                                    const std::map<std::string, WorkTotal>& after, std::size_t steps_after);
WorkDiff compare_work(const WorkTotals& before, const WorkTotals& after);

}  // namespace ms::tracepp
