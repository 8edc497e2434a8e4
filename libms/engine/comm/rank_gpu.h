// Which GPU belongs to a rank that is a process.
#pragma once

#include "comm/world.h"

namespace ms::comm {

// Returns the GPU of this process's rank among those that the process sees: by its place on its node, or the only one
// where a launcher shows each process its own. Throws Error("cuda.none", user) where there are more ranks than GPUs,
// and what tensor::cuda_device_count() throws.
int gpu_of(const World& world);

}  // namespace ms::comm
