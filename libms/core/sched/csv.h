// A schedule as text, to print, to draw, to edit and to supply. One line per pp rank, rank 0 first; cells separated by
// commas, in the order of issue; blanks around cells, empty lines and lines that begin with '#' are ignored.
//
//   F0.3  B0.3    forward, backward of chunk 0, microbatch 3
//   I0.3  W0.3    that backward in two halves: the gradient of its input, the gradients of the weights
//   RF0.3 SF0.3   receive its input from, send its result to the neighbouring virtual stage
//   RB0.3 SB0.3   receive the gradient of its result, send the gradient of its input
//   G0    D0      gather the parameters, reduce the gradients of chunk 0 over dp
//
// Two pp ranks, one microbatch:
//
//   # ms schedule 1: pp 2, chunks 1, microbatches 1, training
//   G0,F0.0,SF0.0,RB0.0,B0.0,D0
//   G0,RF0.0,F0.0,B0.0,SB0.0,D0
#pragma once

#include <string>
#include <string_view>

#include "sched/schedule.h"

namespace ms::sched {

// Slots and channels are not printed: they follow from the order.
std::string to_csv(const Schedule& schedule);

// `name` is for messages (the file). The text must fit `shape`: one line per pp rank, no chunk or microbatch beyond it.
// Throws Error("sched.csv", user) with line and cell. Whether the schedule is sound is the checker's question: ask it.
Schedule parse_csv(std::string_view text, std::string_view name, const Shape& shape);

}  // namespace ms::sched
