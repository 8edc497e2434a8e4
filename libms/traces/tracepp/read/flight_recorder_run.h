// Relates the Flight Recorder dumps of a run to each other, once all are read. Pure.
#pragma once

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Gives the group of all ranks its members where no file names them, as gloo's do not; takes groups apart that were
// made again under one name; numbers sends and recvs alike at both ends where dumps lack the oldest; finds operations
// that failed although they are recorded as ended, and dumps that are older than those of others. Takes the entries out
// of dumps that an earlier attempt left behind.
void relate_dumps(RunTrace& trace);

// Numbers the ranks of dumps, which seldom say of which rank they are (dump_numbers.cpp). Gives each dump the rank that
// its groups leave no choice about, else the one that its file's name tells, unless two ranks have the same: then names
// count ranks of a node, and no such number is believed. Makes numbers up for what is left, as the groups allow, and
// marks those ranks. Throws Error("trace.run", user) if several directories have a dump of one rank.
void number_dumps(RunTrace& trace);

// Returns whether the files of two dumps are of about one time: that of both, or of a copy.
bool are_of_one_time(const RankTrace& one, const RankTrace& other);

// Returns whether a dump of a rank is whole where another is cut, or has newer calls.
bool shows_more(const RankTrace& one, const RankTrace& other);

// Puts the times of dumps on one clock (dump_clocks.cpp). Shifts the times of the ranks whose clocks differ from those
// of most others at the ends of collectives, which all members see at about the same time.
void align_dumps(RunTrace& trace);

// Takes the time stamp of its file as the time a dump was written if that is possible: not before its newest entry, and
// not long after it.
void find_written(RankTrace& rank);

// Leaves out the lines of logs that were last written hours before the first entry of all dumps: they are of another
// run, unless their rank left no dump. Leaves out exceptions of ranks that logged and dumped after: they were caught.
void leave_out_old_lines(RunTrace& trace);

// Leaves out the dumps (earlier_dumps.cpp) that an earlier attempt of the job left behind: all that is in them was over
// before the entries of most others begin. A rank that has been stalled for long may look so, too, where others went on
// and lost their older entries. Of an earlier attempt, the file is older as well, or shows that collectives ended
// before others issued them. A clock that is wrong does that, too: then, only the fewer are left out, and of those, the
// ranks whose numbers are the same as those of others get the others' clock.
void leave_out_earlier(RunTrace& trace);

// Returns whether no member can end such an operation before all have issued it.
bool needs_all_members(Kind kind);

// Numbers the collectives of recorders that count all calls of their process, as that of torchcomms does: such numbers
// of two ranks differ as soon as one of them is in another group, or left out a call (process_numbers.cpp). Gives each
// collective its place in its group, if a dump of the run counts so. Dumps that lack their first entries continue where
// most of what they share with another member was issued at about the same distance in time. If nothing tells where,
// the group is_guessed.
void number_by_group(RunTrace& trace);

}  // namespace ms::tracepp
