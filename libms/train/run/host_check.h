// The memory that ranks as threads take beside that of the node.
#pragma once

#include "base/host_memory.h"
#include "train/plan.h"

namespace ms::train {

// Bytes that all ranks of a run take on one node that computes on its processors: tensors, and what saving copies into.
std::int64_t host_bytes(const Plan& plan);

// Refuses what the node cannot hold, Error("train.memory", user): the kernel would kill the process in its first step,
// without a word. Warns where what is free now is too little.
void check_host_memory(const Plan& plan, const HostMemory& memory);

}  // namespace ms::train
