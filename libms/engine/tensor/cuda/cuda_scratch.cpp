#include "tensor/cuda/cuda_check.h"
#include "tensor/cuda/cuda_ops.h"

namespace ms::tensor {

void CudaScratch::free() noexcept {
  if (data_ != nullptr && has_pools_) cudaFreeAsync(data_, stream_);
  if (data_ != nullptr && !has_pools_) outgrown_.push_back(data_);
  data_ = nullptr;
  size_ = 0;
}
CudaScratch::~CudaScratch() {
  for (void* data : outgrown_) cudaFree(data);
}

void* CudaScratch::take(std::size_t bytes) {
  if (bytes <= size_) return data_;
  free();
  check(has_pools_ ? cudaMallocAsync(&data_, bytes, stream_) : cudaMalloc(&data_, bytes),
        fmt::format("{} bytes of scratch memory", bytes));
  size_ = bytes;
  return data_;
}

}  // namespace ms::tensor
