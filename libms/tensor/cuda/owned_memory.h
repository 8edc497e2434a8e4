// Memory of CUDA's or of a library's, and how it is given back.
#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "tensor/cuda/cuda_check.h"
#include "tensor/stream.h"

namespace ms::tensor {

class OwnedMemory final : public Memory {
 public:
  using GiveBack = void (*)(void*);
  // `data` may be null where `bytes` is 0.
  OwnedMemory(void* data, std::size_t bytes, GiveBack give_back) : data_(data, give_back), size_(bytes) {}
  std::byte* data() const override { return static_cast<std::byte*>(data_.get()); }
  std::size_t size_bytes() const override { return size_; }

 private:
  std::unique_ptr<void, GiveBack> data_;
  std::size_t size_;
};

// The same, of the current GPU, all zeros.
inline std::unique_ptr<Memory> cleared(std::unique_ptr<OwnedMemory> memory) {
  check(cudaMemset(memory->data(), 0, memory->size_bytes()), "clearing memory");
  check(cudaStreamSynchronize(nullptr), "clearing memory");  // our streams do not wait for that one
  return memory;
}

}  // namespace ms::tensor
