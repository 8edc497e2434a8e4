// Checks of what a run asks of its node, before it starts.
#pragma once

#include "base/host_memory.h"
#include "train/plan.h"

namespace ms::train {

// Bytes that all ranks of a run take on one node that computes on its processors: tensors, and what saving copies into.
std::int64_t host_bytes(const Plan& plan);

// Refuses what the node cannot hold, Error("train.memory", user): the kernel would kill the process in its first step,
// without a word. Warns where what is free now is too little.
void check_host_memory(const Plan& plan, const HostMemory& memory);

// Warns where more threads are asked for (0: as many as cores) than the process has cores.
void check_threads(int asked, int cores);

// Warns where checkpoint.memory_dir, which is set, is not in memory, or cannot be looked at: copies would go to a disk.
void check_memory_dir(const std::string& dir);

}  // namespace ms::train
