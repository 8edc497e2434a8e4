// CUDA's errors as ours: who is hurt, and what can be done.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <string_view>

#include "base/error.h"

namespace ms::tensor {

// Of an error of CUDA's, met while `what` was done. Error("cuda.none", node): no GPU or no driver;
// ("cuda.architecture", node): this build has no kernels for the GPU; ("tensor.memory", user): its memory is full;
// ("cuda.hardware", gpu): the GPU reports that it is broken; else ("cuda.error", gpu).
Error cuda_error(cudaError_t code, std::string_view what);

// Of a library's that works on the GPU, of this kind and saying this, unless its cause is known: that the GPU is
// broken, which it tells whoever asks, or that memory is full, as the library says. Then it is as cuda_error() has it.
Error library_error(std::string_view kind, const std::string& text, bool memory_is_full);

inline void check(cudaError_t code, std::string_view what) {
  if (code != cudaSuccess) throw cuda_error(code, what);
}
// Whether an event has passed, or failed. That it has not is an error to CUDA, which would be taken for the next
// launch's.
inline bool has_passed(cudaEvent_t event) {
  if (cudaEventQuery(event) != cudaErrorNotReady) return true;
  cudaGetLastError();
  return false;
}
// Of the launch of a kernel. What it does wrong later is met by whoever waits for it.
void check_launch(std::string_view what);

}  // namespace ms::tensor
