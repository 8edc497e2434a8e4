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

// Returns whether the files of two dumps are of about one time: that of both, or of a copy.
bool are_of_one_time(const RankTrace& one, const RankTrace& other);

// Returns whether a dump of a rank is whole where another is cut, or has newer calls.
bool shows_more(const RankTrace& one, const RankTrace& other);

}  // namespace ms::tracepp
