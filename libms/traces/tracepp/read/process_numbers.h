// Numbers the collectives of recorders that count all calls of their process, as that of torchcomms does: such numbers
// of two ranks differ as soon as one of them is in another group, or left out a call. Used by flight_recorder_run.cpp.
// Pure.
#pragma once

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Gives each collective its place in its group, if a dump of the run counts so. Dumps that lack their first entries
// continue where most of what they share with another member was issued at about the same distance in time. If nothing
// tells where, the group is_guessed.
void number_by_group(RunTrace& trace);

}  // namespace ms::tracepp
