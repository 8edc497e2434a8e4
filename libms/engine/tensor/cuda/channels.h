// The multiprocessors of a GPU that messages take: an NCCL channel is a thread block that stays on one until its
// operation is done, waiting for peers too.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "tensor/cuda/cuda_check.h"

namespace ms::tensor {

inline int multiprocessors_of(int gpu) {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, gpu), "asking what the GPU has");
  return count;
}

// Returns the channels of a group of this width (comm::Group::width) on a GPU of so many multiprocessors, or on the
// GPU.
inline int channels_among(int multiprocessors, int width) {
  constexpr int kMeantFor = 100;
  return std::max(1, width * std::min(multiprocessors, kMeantFor) / kMeantFor);
}
inline int channels_on(int gpu, int width) { return channels_among(multiprocessors_of(gpu), width); }

}  // namespace ms::tensor
