// Environment variables that CUDA and NCCL read before their first call, for ranks that are processes with GPUs.
#pragma once

#include <string>

#include "train/config.h"

namespace ms::train {

// Sets the variables that the user has not set. Must be called before MPI, which may start CUDA, and before there are
// threads, since it changes the environment.
void set_gpu_environment(const RunConfig& run);

// Describes all variables, for the manual.
std::string gpu_environment_manual();

}  // namespace ms::train
