// Matrix products on the GPU: cuBLASLt. Our matrices are row-major, its are column-major: c = op(a) op(b) is told as
// c^T = op(b)^T op(a)^T on the same memory.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <compare>
#include <cstddef>
#include <map>
#include <memory>

#include "tensor/ops.h"

namespace ms::tensor {

// Throws Error("cuda.cublas", gpu).
void check(cublasStatus_t status, const char* what);

class CudaMatmul {
 public:
  // Scratch that every product may use: what Hopper's algorithms were made for.
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;

  CudaMatmul();
  // bf16 products with sums in f32; f32 products in f32 (no TF32), as on the CPU. Throws Error("cuda.cublas").
  void run(const Matmul& op, cudaStream_t stream, void* workspace);

 private:
  // What decides for an algorithm.
  struct Key {
    std::int64_t m, n, k, ld_a, ld_b, ld_c;
    std::uint32_t alignment_a, alignment_b, alignment_c;  // in bytes
    DType in, out;
    bool transpose_a, transpose_b, accumulate, bias;
    auto operator<=>(const Key&) const = default;
  };
  struct Plan;
  struct Close {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
    void operator()(Plan* plan) const;
  };
  const Plan& plan(const Matmul& op, const Key& key);

  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Close> handle_;
  std::map<Key, std::unique_ptr<Plan, Close>> plans_;
};

}  // namespace ms::tensor
