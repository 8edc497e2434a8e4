// Matmuls on the GPU: cuBLASLt. Our matrices are row-major, its are column-major: c = op(a) op(b) is passed as c^T =
// op(b)^T op(a)^T on the same memory.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <compare>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/cuda/cuda_ops.h"
#include "tensor/cuda/lowered_matmul.h"
#include "tensor/matmul_choices.h"
#include "tensor/ops.h"

namespace ms::tensor {

// Throws library_error("cuda.cublas") unless `status` is CUBLAS_STATUS_SUCCESS.
void check(cublasStatus_t status, const char* what);

class CudaMatmul {
 public:
  // Uses the current GPU, and of it so many multiprocessors (0: all), fewer by those that Matmul::beside takes.
  explicit CudaMatmul(int multiprocessors);
  // Uses these algorithms from now on, if they belong to this GPU and this cuBLASLt; otherwise clears them.
  void take(MatmulChoices& choices);
  // Selects the algorithm for matmuls of this form without running one. If it is not among the choices, it is the
  // library's first one, or, if `timed`, the autotuned one, which is added to the choices. Returns the scratch memory
  // that it needs.
  std::size_t prepare(const Matmul& op, MatmulChoices& choices, bool timed);
  // Rounds an operand for such matmuls. `scratch`: sums_bytes().
  void round(const RoundToFp8& op, void* scratch, cudaStream_t stream) const {
    round_to_fp8(op, major_, scratch, stream);
  }
  // Runs what was prepared and has not run, once, in other memory: cuBLASLt loads a kernel when it is first launched,
  // which waits for all that runs, messages included.
  void run_new();
  // bf16 matmuls with sums in f32; f32 matmuls in f32 (no TF32), as on the CPU. Throws library_error("cuda.cublas").
  void run(const Matmul& op, cudaStream_t stream, CudaScratch& scratch);

 private:
  enum class Gelu : std::uint8_t { none, y, x };
  // Everything that an algorithm depends on: the form of a matmul as passed to cuBLASLt. If there is a gelu_y, that is
  // the result and c is `aux`; otherwise `aux` is gelu_x.
  struct Key {
    std::int64_t m, n, k, ld_a, ld_b, ld_c, ld_aux;
    std::uint32_t alignment_a, alignment_b, alignment_c, alignment_bias, alignment_aux;  // in bytes
    std::int32_t multiprocessors;                                                        // that it may take; 0: all
    DType in, out;
    Operands operands;  // as_given: of type `in`
    Gelu gelu;
    bool transpose_a, transpose_b, accumulate, bias, sums;
    auto operator<=>(const Key&) const = default;
    // Tells whether our kernels may do a part of it in another pass.
    bool fuses() const { return gelu != Gelu::none || sums; }
    // Tells whether the parts are assumed to be faster: on an H200 sums in a matmul cost 1.0 to 1.2 times what they
    // cost apart, and a gelu' in an fp8 matmul 1.2 to 2.7 times.
    bool is_slow() const { return sums || (gelu == Gelu::x && operands != Operands::as_given); }
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
  // In place of an algorithm: for this form a separate GELU, or separate sums, are faster.
  static constexpr std::string_view kApart = "apart";
  Key key_of(const Matmul& matmul) const;
  std::int32_t multiprocessors_for(const Matmul& matmul) const;  // as in Key
  // Returns the descriptors for cuBLASLt, without an algorithm.
  static std::unique_ptr<Plan> describe(const Matmul& matmul, const Key& key, const LoweredMatmul::Scales& scales);
  static void set_pointers(const Plan& plan, const Matmul& matmul, const LoweredMatmul::Scales& scales);
  // Returns the plan of this form, created on first use. nullptr if there is none, or if it is slower than its parts,
  // as autotuning found or, without that, is_slow() says.
  const Plan* plan(const LoweredMatmul& lowered, const Key& key);
  // Returns at most `most` algorithms, the library's favourite first.
  std::vector<cublasLtMatmulAlgo_t> algorithms(const Plan& plan, const Key& key, int most) const;
  // Returns the autotuned algorithm for this form, serialized as in MatmulChoices; empty if there is none.
  std::string autotuned(const Matmul& like) const;
  void add_new(const Matmul& like, const Plan& plan);  // for run_new()
  cublasStatus_t multiply(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm, const Matmul& matmul,
                          void* workspace, cudaStream_t stream) const;

  int major_;                     // of the GPU's compute capability
  std::int32_t all_;              // multiprocessors of the GPU
  std::int32_t multiprocessors_;  // as in Key, if no messages are in flight beside the matmul
  std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, Close> handle_;
  std::map<Key, std::unique_ptr<Plan>> plans_;           // null: none available, or slower than its parts
  std::map<std::string, std::string> chosen_;            // as in MatmulChoices
  std::set<std::pair<std::string, std::string>> known_;  // forms with algorithms: run, or in new_
  std::vector<std::pair<Matmul, cublasLtMatmulAlgo_t>> new_;
};

}  // namespace ms::tensor
