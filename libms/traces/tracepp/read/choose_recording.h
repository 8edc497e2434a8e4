// Several recordings in one place: a job that was profiled again, and the directories of its nodes.
#pragma once

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Keeps the newest recording where a rank was traced several times, and names the others in the trace. Throws
// Error("trace.run", user) if ranks of one number were traced at one time in several directories: these are two runs.
void choose_recording(RunTrace& trace);

}  // namespace ms::tracepp
