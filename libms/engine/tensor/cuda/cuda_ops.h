// The op list on CUDA: maps each op to a kernel, a cuBLASLt matmul or a cuDNN plan. An object belongs to a rank;
// scratch memory belongs to a stream.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <span>
#include <vector>

#include "kernels/launch.h"
#include "tensor/cuda/host_integers.h"
#include "tensor/cuda_plugin.h"
#include "tensor/matmul_choices.h"
#include "tensor/ops.h"

namespace ms::tensor {

// Memory that kernels of one stream use between two of their launches. It grows when an op first needs more; after one
// step it no longer grows. What it outgrows is freed in stream order if the GPU has memory pools, and otherwise with
// the stream: cudaFree() waits for the whole GPU, and so for peers that may wait for this rank.
class CudaScratch {
 public:
  CudaScratch() = default;
  ~CudaScratch();
  CudaScratch(const CudaScratch&) = delete;
  CudaScratch& operator=(const CudaScratch&) = delete;

  void belong_to(cudaStream_t stream, bool has_pools) { stream_ = stream, has_pools_ = has_pools; }
  void* take(std::size_t bytes);
  void free() noexcept;  // before the stream is destroyed

 private:
  cudaStream_t stream_ = nullptr;
  bool has_pools_ = false;
  void* data_ = nullptr;
  std::size_t size_ = 0;
  std::vector<void*> outgrown_;
};

kernels::Type kernel_type(DType dtype);
kernels::Matrix kernel_matrix(const Tensor& t);

class CudaOps {
 public:
  // `multiprocessors`: of the GPU, for matmuls; 0: all. `shared` may be null. Throws Error("cuda.*") if cuBLASLt or
  // cuDNN cannot be used.
  CudaOps(bool deterministic, int multiprocessors, SharedPlans* shared);
  ~CudaOps();
  // Implements Device::prepare(); returns the most scratch memory that one of the ops needs.
  std::size_t prepare(std::span<const Op> ops, MatmulChoices& choices, bool timed);
  // Issues the op. Throws Error("cuda.*"), also for errors of earlier ops on any stream.
  void run(const Op& op, cudaStream_t stream, CudaScratch& scratch);
  // The integers that ops and communicators need on the host.
  HostIntegers& integers();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ms::tensor
