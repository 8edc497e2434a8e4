// From the traces of a run to the steps of the what-if analysis, and to a table of what each rank did in each step.
// For suspects.cpp. Pure.
//
// Everything is taken from durations on one rank's clock: how long a message really moved data is the shortest time
// that one of its members spent in it, for the last to come waits for nobody. Clocks that are not aligned change the
// starts only.
#pragma once

#include "tracepp/rank_table.h"
#include "tracepp/run_trace.h"
#include "tracepp/step_trace.h"

namespace ms::tracepp {

struct BuiltSteps {
  StepTrace steps;
  RankTable ranks;
};

// Throws Error("trace.shape", user) as find_pattern.
BuiltSteps build_steps(const RunTrace& trace);

}  // namespace ms::tracepp
