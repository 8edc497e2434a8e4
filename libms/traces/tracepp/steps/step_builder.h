// Builds the steps of the what-if analysis from the traces of a run, and a table of what each rank did in each step.
// For suspects.cpp. Pure.
//
// Everything is taken from durations on one rank's clock: the time in which a collective really moved data is the
// shortest time that one of its members spent in it, because the last member to arrive waits for none. Clocks that are
// not aligned change only the starts.
#pragma once

#include "tracepp/run_trace.h"
#include "tracepp/steps/rank_table.h"
#include "tracepp/steps/step_trace.h"

namespace ms::tracepp {

struct BuiltSteps {
  StepTrace steps;
  RankTable ranks;
};

// Throws Error("trace.shape", user) as find_pattern.
BuiltSteps build_steps(const RunTrace& trace);

}  // namespace ms::tracepp
