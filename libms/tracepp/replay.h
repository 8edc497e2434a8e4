// A step played again with other durations: what would it have taken if ... . Pure.
//
// Steps do not depend on each other, so that they are played on a few threads, one after the other on each: what is
// worked on then stays in the caches.
#pragma once

#include <vector>

#include "tracepp/step_graph.h"

namespace ms::tracepp {

class Replay {
 public:
  // The trace outlives it.
  explicit Replay(const StepTrace& trace);

  // [op]: for every lane, as StepTrace has them, how long the operation takes: a computation from its start to its end,
  // a communication from when the last of its group was launched. Operations may share a row.
  using Rows = std::vector<const double*>;
  // Seconds of every step. Nothing is launched later than what it waits for allows.
  std::vector<double> steps(const Rows& rows) const;
  // The same, of durations[op][lane].
  std::vector<double> steps(const std::vector<double>& durations) const;
  // [step][dp rank]: seconds of every step if that dp rank's operations take their row, and those of all others take
  // others[op]. All others are then equal, so that one of them stands for all: the price is that of two replays, not of
  // one for each dp rank.
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

// What the trace measured, so that Replay takes it: communications without the time in which they waited for others.
std::vector<double> transfer_durations(const StepTrace& trace, const StepGraph& graph);

}  // namespace ms::tracepp
