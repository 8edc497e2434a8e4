// From the order of a rank's computations to its rows: what has to be received before, sent after, gathered and reduced
// stands where Options (generate.h) say. Called by the generators only.
#pragma once

#include <vector>

#include "sched/generate.h"

namespace ms::sched {

// `orders` are the computations of every rank, without slot and channel. Each rank by itself may do them in this order,
// and all of them together come to an end.
Schedule lower(const std::vector<std::vector<Row>>& orders, const Shape& shape, const Options& options);

}  // namespace ms::sched
