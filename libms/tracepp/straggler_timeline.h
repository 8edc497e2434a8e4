// The steps of a StragglerAnalysis timeline, for the what-if analysis of stragglers.h. Pure.
#pragma once

#include "tracepp/run_trace.h"
#include "tracepp/step_trace.h"

namespace ms::tracepp {

// Of a trace whose events have NDTimeline's names (to_string(OpType)). Operations are those that most steps have on
// most ranks; steps in which some rank lacks one, or has another, are left out and counted. Of the tp ranks of a stage
// the first is taken. Throws Error("trace.shape", user) where no step is whole, or there are no such events.
StepTrace straggler_steps(const RunTrace& trace);

}  // namespace ms::tracepp
