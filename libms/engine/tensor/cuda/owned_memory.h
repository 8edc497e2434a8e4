// Memory of CUDA or of a library, with the function that frees it.
#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "tensor/cuda/cuda_check.h"
#include "tensor/stream.h"

namespace ms::tensor {

class OwnedMemory final : public Memory {
 public:
  using Free = void (*)(void*);
  // `data` may be null if `bytes` is 0.
  OwnedMemory(void* data, std::size_t bytes, Free free) : data_(data, free), size_(bytes) {}
  std::byte* data() const override { return static_cast<std::byte*>(data_.get()); }
  std::size_t size_bytes() const override { return size_; }

 private:
  std::unique_ptr<void, Free> data_;
  std::size_t size_;
};

// Returns memory of the current GPU, zeroed.
inline std::unique_ptr<Memory> cleared(std::unique_ptr<OwnedMemory> memory) {
  check(cudaMemset(memory->data(), 0, memory->size_bytes()), "clearing memory");
  check(cudaStreamSynchronize(nullptr), "clearing memory");  // our streams do not wait for the default stream
  return memory;
}

}  // namespace ms::tensor
