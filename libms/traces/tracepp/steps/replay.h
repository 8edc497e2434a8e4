// Replays a step with other durations: how long would it have taken if ... . Pure.
//
// Steps do not depend on each other, so they are replayed on a few threads, one after the other on each: the working
// set stays in the caches.
#pragma once

#include <vector>

#include "tracepp/steps/step_graph.h"

namespace ms::tracepp {

class Replay {
 public:
  // The trace must outlive it.
  explicit Replay(const StepTrace& trace);

  // [op]: for every lane, as StepTrace has them, how long the operation takes: a computation from its start to its end,
  // communication from when the last of its group was launched. Operations may share a row.
  using Rows = std::vector<const double*>;
  // Returns the seconds of every step. Each operation is launched as early as its dependencies allow.
  std::vector<double> steps(const Rows& rows) const;
  // The same for durations[op][lane].
  std::vector<double> steps(const std::vector<double>& durations) const;
  // Returns [step][dp rank]: the seconds of every step if that dp rank's operations take their row, and those of all
  // others take others[op]. All others are then equal, so one of them stands for all: the cost is that of two replays,
  // not of one for each dp rank.
  std::vector<double> steps_alone(const Rows& rows, const std::vector<double>& others) const;

  const StepGraph& graph() const { return graph_; }

 private:
  struct Scratch;
  void play(Scratch& scratch, std::size_t step, const Rows& rows, const std::vector<double>* others) const;

  const StepTrace& trace_;
  StepGraph graph_;
  StepOrder order_;
};

// [op]: rows of durations[op][lane].
Replay::Rows rows_of(const StepTrace& trace, const std::vector<double>& durations);

// Returns the measured durations as Replay takes them: communication without the time spent waiting for others.
std::vector<double> transfer_durations(const StepTrace& trace, const StepGraph& graph);

}  // namespace ms::tracepp
