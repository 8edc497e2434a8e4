// Relates the Flight Recorder dumps of a run to each other. read.cpp calls it once all are read. Pure.
#pragma once

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Gives the group of all ranks its members where no file names them, as gloo's do not; takes groups apart that were
// made again under one name; numbers sends and recvs alike at both ends where dumps lack the oldest; finds operations
// that failed although they are recorded as ended, and dumps that are older than those of others. Takes the entries out
// of dumps that an earlier attempt left behind.
void relate_dumps(RunTrace& trace);

}  // namespace ms::tracepp
