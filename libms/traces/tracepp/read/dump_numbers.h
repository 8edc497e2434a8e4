// Numbers the ranks of Flight Recorder dumps, which seldom say of which rank they are. read.cpp calls it once all are
// read. Pure.
#pragma once

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Gives each dump the rank that its groups leave no choice about, else the one that its file's name tells, unless two
// ranks have the same: then names count ranks of a node, and no such number is believed. Makes numbers up for what is
// left, as the groups allow, and marks those ranks. Throws Error("trace.run", user) if several directories have a dump
// of one rank.
void number_dumps(RunTrace& trace);

}  // namespace ms::tracepp
