// Integers of tensors on the GPU that the host needs to issue work: how many rows an expert has. A copy follows what
// computes them, and the host waits for that copy alone, not for what its stream does later.
#pragma once

#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <vector>

#include "tensor/stream.h"

namespace ms::tensor {

// Not thread-safe: used while the device's mutex is held.
class HostIntegers {
 public:
  HostIntegers() = default;
  ~HostIntegers();
  HostIntegers(const HostIntegers&) = delete;
  HostIntegers& operator=(const HostIntegers&) = delete;

  // Issues a copy of an i32 tensor. What changes it later, or takes its memory for other integers, copies again.
  void copy(const Tensor& x, cudaStream_t stream);
  // Returns the elements of a tensor, or of a part of it, once its last copy has arrived; without a copy, once the
  // stream has done what was issued before.
  std::vector<std::int32_t> read(const Tensor& x, cudaStream_t stream) const;

 private:
  struct Copy {
    std::unique_ptr<Memory> host;  // pinned; grows, so that a step after the first allocates nothing
    cudaEvent_t arrived = nullptr;
    std::int64_t bytes = 0;
  };
  static void free(const Copy& copy);

  std::map<const std::byte*, Copy> copies_;  // by the tensor's address
};

}  // namespace ms::tensor
