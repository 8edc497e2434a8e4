// Judges each source of a hang by itself: its suspects and a sentence. evidence.cpp joins them. Pure.
#pragma once

#include <vector>

#include "tracepp/hang/hang.h"

namespace ms::tracepp {

// Those of the traces alone.
Hang hang_of_traces(const RunTrace& trace, double now_s);
// Counts of calls: who is behind and waits in no other communicator holds the others up. One sample of a run that is
// well may look so, two that are alike do not. RAS counts what the hosts issued, not what ended.
Hang judge_ras(const std::vector<RasReport>& reports);
// Who does something else while most ranks wait in collectives or for their devices.
Hang judge_stacks(const std::vector<ProcessStack>& stacks);
// Who is behind or elsewhere while no process makes progress; and whether any does, which is no hang, but may be slow.
// `now_ns`: when the other sources looked, since 1970; 0: not known. The reports are of one kind of source.
Hang judge_progress(const std::vector<ProgressReport>& reports, std::int64_t now_ns);
// Lines that only a broken device, or only a failed program, prints. `is_alone`: no other source tells anything, so
// that lines are quoted which tell of no cause.
Hang judge_lines(const std::vector<NotedLine>& lines, bool is_alone);

// "rank 5 (node n2, process 4711)", with what is known of it.
std::string process_name(const Process& process);

}  // namespace ms::tracepp
