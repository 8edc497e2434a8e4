// Reads the steps of a StragglerAnalysis timeline for the what-if analysis of stragglers.h. Pure.
#pragma once

#include "tracepp/run_trace.h"
#include "tracepp/steps/step_trace.h"

namespace ms::tracepp {

// Requires a trace whose events have NDTimeline's names (to_string(OpType)). Its operations are those that most steps
// have on most ranks; steps in which some rank lacks one, or has another, are left out and counted. The first tp rank
// of a stage stands for it. Throws Error("trace.shape", user) if no step is complete, or there are no such events.
StepTrace straggler_steps(const RunTrace& trace);

}  // namespace ms::tracepp
