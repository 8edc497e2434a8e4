// Sets the times of operations that synchronise ranks so that a replay takes as long as they did. For step_builder.cpp.
// Pure.
#pragma once

#include <vector>

#include "tracepp/steps/step_trace.h"

namespace ms::tracepp {

// The collectives of one chunk over dp. There are several, and they overlap the computation of the chunk: its first
// forward begins when the first of n all-gathers is done and waits for the others on its way; the first of n gradients
// is reduced when the last backward still has (n - 1) / n of its way to go. A single operation that the forward waits
// for, or that waits for the backward, would make a replay longer than the run was. So each chunk has two operations:
// `op` lasts as long as computation and communication together exceed the computation, if its parts are equally long;
// `beside` is the rest, which occupies the dp stream and is not waited for. For all-gathers g_i and a forward of f
// seconds
//   op = max over i of (g_0 + ... + g_i - i f / n)
// and mirrored for reductions.
struct DpOps {
  int op = -1, beside = -1;  // of the StepTrace
};
// Sets their starts and durations in a step on all dp ranks. The caller has set the start of `op` for gathers, and both
// starts for reductions. `moved`: seconds in which each collective moved data, in order of issue; `before_s`: the same
// of those that were over before the computation that they overlap began. `compute`: the operation that they overlap;
// -1: none.
void set_over_dp(StepTrace& steps, const DpOps& ops, int compute, bool gathers, std::size_t step,
                 const std::vector<double>& moved, double before_s = 0);

// Sets the durations of all operations of a type on dp ranks [first, last) so that they end `moved` seconds after the
// last of them begins. Does nothing if `moved` is infinite.
void meet(StepTrace& steps, OpType type, std::size_t step, int first, int last, double moved);

}  // namespace ms::tracepp
