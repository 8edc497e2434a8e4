// Puts the times of Flight Recorder dumps on one clock, and tells which logs are of another time. Pure.
#pragma once

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Shifts the times of the ranks whose clocks differ from those of most others at the ends of collectives, which all
// members see at about the same time.
void align_dumps(RunTrace& trace);

// Takes the time stamp of its file as the time a dump was written if that is possible: not before its newest entry, and
// not long after it.
void find_written(RankTrace& rank);

// Leaves out the lines of logs that were last written hours before the first entry of all dumps: they are of another
// run, unless their rank left no dump. Leaves out exceptions of ranks that logged and dumped after: they were caught.
void leave_out_old_lines(RunTrace& trace);

}  // namespace ms::tracepp
