// Finds the Flight Recorder dumps of earlier attempts among those of a run. Used by flight_recorder_run.cpp. Pure.
#pragma once

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Leaves out the dumps that an earlier attempt of the job left behind: all that is in them was over before the entries
// of most others begin. A rank that has been stalled for long may look so, too, where others went on and lost their
// older entries. Of an earlier attempt, the file is older as well, or shows that collectives ended before others issued
// them. A clock that is wrong does that, too: then, only the fewer are left out, and of those, the ranks whose numbers
// are the same as those of others get the others' clock.
void leave_out_earlier(RunTrace& trace);

// Returns whether no member can end such an operation before all have issued it.
bool needs_all_members(Kind kind);

}  // namespace ms::tracepp
