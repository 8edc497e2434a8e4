// The op list on CUDA: which kernel, product or plan an op is. One of these belongs to a rank; scratch memory belongs
// to a stream.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <span>

#include "kernels/launch.h"
#include "tensor/matmul_choices.h"
#include "tensor/ops.h"

namespace ms::tensor {

// Memory that kernels of one stream use between two of their launches. Grows, in the stream's order, when an op first
// asks for more; a step that was run once asks for no more than the next.
class CudaScratch {
 public:
  explicit CudaScratch(cudaStream_t stream = nullptr) : stream_(stream) {}
  CudaScratch(const CudaScratch&) = delete;
  CudaScratch& operator=(const CudaScratch&) = delete;

  void belong_to(cudaStream_t stream) { stream_ = stream; }
  void* take(std::size_t bytes);
  void give_back() noexcept;  // before the stream goes

 private:
  cudaStream_t stream_;
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

kernels::Type kernel_type(DType dtype);
kernels::Matrix kernel_matrix(const Tensor& t);

class CudaOps {
 public:
  // Throws Error("cuda.*") where cuBLASLt or cuDNN cannot be had.
  explicit CudaOps(bool deterministic);
  ~CudaOps();
  // Device::prepare(); returns the most scratch memory that one of them takes.
  std::size_t prepare(std::span<const Op> ops, MatmulChoices& choices, bool timed);
  // Issues it. Throws Error("cuda.*"), also for what an earlier op of any stream did wrong.
  void run(const Op& op, cudaStream_t stream, CudaScratch& scratch);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::tensor
