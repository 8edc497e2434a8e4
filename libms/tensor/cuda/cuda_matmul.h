// Matrix products on the GPU: cuBLASLt. Our matrices are row-major, its are column-major: c = op(a) op(b) is told as
// c^T = op(b)^T op(a)^T on the same memory.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensor/matmul_choices.h"
#include "tensor/ops.h"

namespace ms::tensor {

// Throws Error("cuda.cublas", gpu).
void check(cublasStatus_t status, const char* what);

class CudaMatmul {
 public:
  // Scratch that every product may use: what Hopper's algorithms were made for.
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;

  // Of the GPU that is current.
  CudaMatmul();
  // What run() is given of it: behind the workspace lie what a bias of another type than the result is converted to,
  // and factors that are rounded.
  std::size_t scratch_bytes(const Matmul& op) const { return places_of(op).end; }
  // From now on these are multiplied as they say, if they are of this GPU and this cuBLASLt; else they are emptied.
  void take(MatmulChoices& choices);
  // Chooses the algorithm for products of this form, which are not run. Where it is not among the choices: the
  // library's own first one, or where `timed` the fastest, which is added to them.
  void prepare(const Matmul& op, MatmulChoices& choices, bool timed);
  // bf16 products with sums in f32; f32 products in f32 (no TF32), as on the CPU; factors in fp8 are multiplied as such
  // where GPU and shape allow that, and else as the bf16 that they are, too. Throws Error("cuda.cublas").
  void run(const Matmul& op, cudaStream_t stream, void* scratch);

 private:
  static bool converts_bias(const Matmul& op) { return op.bias && op.bias.dtype != op.c.dtype; }
  // What decides for an algorithm: the form of a product.
  struct Key {
    std::int64_t m, n, k, ld_a, ld_b, ld_c;
    std::uint32_t alignment_a, alignment_b, alignment_c, alignment_bias;  // in bytes
    DType in, out;
    Factors factors;  // as_given: of type `in`
    bool transpose_a, transpose_b, accumulate, bias;
    auto operator<=>(const Key&) const = default;
    std::string text() const;
  };
  struct Plan;
  struct Close {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
    void operator()(Plan* plan) const;
  };
  // Offsets into scratch.
  struct Places {
    std::size_t bias, scales, a, b, end;
  };
  Places places_of(const Matmul& op) const;
  // Products of eight bits take factors whose sums run along memory, in pieces of 16.
  bool in_eight_bits(const Matmul& op) const;
  // What is multiplied in place of `op`, once make_factors() has made it.
  Matmul as_multiplied(const Matmul& op, std::byte* scratch) const;
  void make_factors(const Matmul& op, const Matmul& made, cudaStream_t stream, std::byte* scratch) const;

  static Key key_of(const Matmul& made);
  // What cuBLASLt is told, without an algorithm; `scales` of the first and the second factor, where they have some.
  static std::unique_ptr<Plan, Close> describe(const Matmul& made, const Key& key, const float* scales);
  static void set_pointers(const Plan& plan, const Matmul& made, const float* scales);
  // The plan of this form, made where it is not known.
  const Plan& plan(const Matmul& made, const Key& key, const float* scales);
  // At most so many, the library's favourite first; at least one.
  std::vector<cublasLtMatmulAlgo_t> algorithms(const Plan& plan, const Key& key, int most) const;
  cublasLtMatmulAlgo_t fastest_algorithm(const Matmul& made, const Key& key) const;
  cublasStatus_t multiply(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Matmul& made, void* workspace,
                          cudaStream_t stream) const;

  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Close> handle_;
  std::map<Key, std::unique_ptr<Plan, Close>> plans_;
  std::map<std::string, std::string> chosen_;  // as in MatmulChoices
  bool has_fp8_;
};

}  // namespace ms::tensor
