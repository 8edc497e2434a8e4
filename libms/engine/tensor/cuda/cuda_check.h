// Turns CUDA's errors into ours, with blame and a hint.
#pragma once

#include <cuda_runtime.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tensor/tensor.h"

namespace ms::tensor {

// Returns the error for a CUDA error code that occurred while `what` was done, by a table: Error("cuda.none", node) for
// no GPU or no driver; ("cuda.architecture", node) if this build has no kernels for the GPU; ("cuda.node", node) if the
// node's driver does not serve us; ("tensor.memory", user) if the GPU's memory is full; ("cuda.hardware", gpu) if the
// GPU reports a hardware error; ("cuda.program", bug) for what only a program does wrong, such as an illegal address;
// otherwise ("cuda.error", gpu), which accuses the GPU until a look at it clears it.
Error cuda_error(cudaError_t code, std::string_view what);

// Returns the error of a GPU library, of this kind and with this text, unless the cause is known: a broken GPU, which
// the runtime reports, or full memory, as the library reports. Then it is that of cuda_error().
Error library_error(std::string_view kind, const std::string& text, bool memory_is_full);

inline void check(cudaError_t code, std::string_view what) {
  if (code != cudaSuccess) throw cuda_error(code, what);
}
// Tells whether an event has passed, or failed. Clears cudaErrorNotReady, which the next launch would otherwise report.
inline bool has_passed(cudaEvent_t event) {
  if (cudaEventQuery(event) != cudaErrorNotReady) return true;
  cudaGetLastError();
  return false;
}
// Throws the error of a launch. Errors during execution are reported to whoever waits for the kernel.
void check_launch(std::string_view what);

}  // namespace ms::tensor
