// A step played again with other durations: what would it have taken if ... . Pure.
#pragma once

#include <vector>

#include "tracepp/step_graph.h"

namespace ms::tracepp {

class Replay {
 public:
  // The trace outlives it.
  explicit Replay(const StepTrace& trace);

  // Seconds of every step if each operation takes durations[op][lane], all lanes as StepTrace has them: for a
  // computation from its start to its end, for a communication from when the last of its group was launched. Nothing is
  // launched later than what it waits for allows.
  std::vector<double> steps(const std::vector<double>& durations);

  const StepGraph& graph() const { return graph_; }

 private:
  const StepTrace& trace_;
  StepGraph graph_;
  StepOrder order_;
  std::vector<double> start_, end_;  // [op][lane]
};

// What the trace measured, so that Replay takes it: communications without the time in which they waited for others.
std::vector<double> transfer_durations(const StepTrace& trace, const StepGraph& graph);

}  // namespace ms::tracepp
