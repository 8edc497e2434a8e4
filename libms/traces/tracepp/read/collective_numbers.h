// Numbers for collectives that have none: Kineto writes "Seq" only since some version of PyTorch. All ranks of a group
// issue its collectives in one order, so the n-th of each rank are one operation, but only where every rank's trace
// holds the same ones. Pure.
#pragma once

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Sets Event::detail of collectives without a number, in groups whose members are known and where all traced members
// have the same kinds in the same order (all-reduces also of the same size) and the same steps. Others stay without,
// and are counted in trace.problems, as are those of traces that are cut off. `trace`: of the whole run, with its ranks
// in order.
void number_collectives(RunTrace& trace);

// Takes all collectives for those of one group of all traced ranks if no collective has a group (older traces), all
// ranks hold the same ones in order, and ranks leave each of them at once. Such a group is_guessed.
void group_by_order(RunTrace& trace);

}  // namespace ms::tracepp
