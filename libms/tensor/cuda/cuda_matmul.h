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
#include <string_view>
#include <vector>

#include "tensor/cuda/cuda_ops.h"
#include "tensor/cuda/made_matmul.h"
#include "tensor/matmul_choices.h"
#include "tensor/ops.h"

namespace ms::tensor {

// Throws library_error("cuda.cublas") unless it is CUBLAS_STATUS_SUCCESS.
void check(cublasStatus_t status, const char* what);

class CudaMatmul {
 public:
  // Of the GPU that is current.
  CudaMatmul();
  // From now on these are multiplied as they say, if they are of this GPU and this cuBLASLt; else they are emptied.
  void take(MatmulChoices& choices);
  // Chooses the algorithm for products of this form, which are not run. Where it is not among the choices: the
  // library's own first one, or where `timed` the fastest, which is added to them. Returns the scratch memory that
  // they take.
  std::size_t prepare(const Matmul& op, MatmulChoices& choices, bool timed);
  // bf16 products with sums in f32; f32 products in f32 (no TF32), as on the CPU. Throws
  // library_error("cuda.cublas").
  void run(const Matmul& op, cudaStream_t stream, CudaScratch& scratch);

 private:
  enum class Gelu : std::uint8_t { none, y, x };
  // What decides for an algorithm: the form of a product as cuBLASLt is told it. Its result is gelu_y where there is
  // one, and what else it reads or writes (`aux`) then c; or gelu_x.
  struct Key {
    std::int64_t m, n, k, ld_a, ld_b, ld_c, ld_aux;
    std::uint32_t alignment_a, alignment_b, alignment_c, alignment_bias, alignment_aux;  // in bytes
    DType in, out;
    Factors factors;  // as_given: of type `in`
    Gelu gelu;
    bool transpose_a, transpose_b, accumulate, bias;
    auto operator<=>(const Key&) const = default;
    std::string text() const;
  };
  struct Plan {
    Plan() = default;
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;
    ~Plan();
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;  // as cuBLASLt sees them
    cublasLtMatmulAlgo_t algorithm{};
  };
  struct Close {
    void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
  };
  // Of a form whose GELU is faster for itself, in place of an algorithm.
  static constexpr std::string_view kApart = "apart";
  static Key key_of(const Matmul& product);
  // What cuBLASLt is told, without an algorithm.
  static std::unique_ptr<Plan> describe(const Matmul& product, const Key& key, const float* scales);
  static void set_pointers(const Plan& plan, const Matmul& product, const float* scales);
  // The plan of this form, made where it is not known. nullptr: it cannot be had, or takes longer than its parts.
  const Plan* plan(const MadeMatmul& made, const Key& key);
  // At most so many, the library's favourite first.
  std::vector<cublasLtMatmulAlgo_t> algorithms(const Plan& plan, const Key& key, int most) const;
  // The fastest one for a product of this form, as MatmulChoices has it; nothing where there is none.
  std::string chosen_by_timing(const Matmul& like) const;
  cublasStatus_t multiply(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Matmul& product,
                          void* workspace, cudaStream_t stream) const;

  int major_;  // of the GPU's compute capability
  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Close> handle_;
  std::map<Key, std::unique_ptr<Plan>> plans_;  // null: not to be had, or not worth it
  std::map<std::string, std::string> chosen_;   // as in MatmulChoices
};

}  // namespace ms::tensor
