// What CUDA and NCCL read from the environment before their first call, where ranks are processes with GPUs.
#pragma once

#include <string>

#include "train/config.h"

namespace ms::train {

// What the user has set stands. Before MPI, which may start CUDA; changes the environment, so before there are threads.
void set_gpu_environment(const RunConfig& run);

// Of all of them, for the manual.
std::string gpu_environment_manual();

}  // namespace ms::train
