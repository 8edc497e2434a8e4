// Lowers a matmul of the op list to one of cuBLASLt's: converts its bias and operands before, and its result
// afterwards.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/launch.h"
#include "tensor/ops.h"

namespace ms::tensor {

// The parts of a matmul that cuBLASLt does itself; our kernels before or after it do the rest.
struct MatmulVariant {
  bool fp8 = false;   // an fp8 GEMM; otherwise rounded operands are multiplied as bf16
  bool gelu = false;  // fuses the GELU
  bool sums = false;  // computes a_sums
  int major = 0;      // of the GPU's compute capability
};
// Returns the variants that this GPU and the matmul's shape allow, best first; the last one always works. `major` is
// that of the GPU's compute capability.
std::vector<MatmulVariant> variants_of(const Matmul& op, int major);

// Tells whether RoundToFp8 leaves numbers in fp8 on such a GPU, ready for its fp8 GEMMs; otherwise it rounds x in bf16.
bool rounds_to_bytes(const Tensor& x, int major);
// `scratch`: sums_bytes().
void round_to_fp8(const RoundToFp8& op, int major, void* scratch, cudaStream_t stream);
inline std::size_t sums_bytes(const RoundToFp8& op) {
  return op.sums ? std::max(kernels::fp8_sums_bytes(op.x.rows, op.x.cols), kernels::column_sums_bytes(op.x.cols, 1))
                 : 0;
}

// Issues the GELU on a result that cuBLASLt has left in c.
void apply_gelu(const Matmul& op, cudaStream_t stream);
// Issues a_sums. `scratch`: sums_bytes().
void apply_sums(const Matmul& op, void* scratch, cudaStream_t stream);
inline std::size_t sums_bytes(const Matmul& op) { return kernels::column_sums_bytes(op.a.cols, 1); }

// Returns the alignment of the first element in bytes, which is all that algorithms depend on; 0 if absent.
std::uint32_t alignment_of(const Tensor& t);

// cuBLASLt's result, and the second matrix that it writes or reads: gelu_y and c, or c and gelu_x.
struct ResultAndAux {
  explicit ResultAndAux(const Matmul& matmul)
      : result(matmul.gelu_y ? matmul.gelu_y : matmul.c), aux(matmul.gelu_y ? matmul.c : matmul.gelu_x) {}
  Tensor result, aux;
};

class LoweredMatmul {
 public:
  // cuBLASLt's workspace, of the size that Hopper's algorithms need.
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;

  // `scratch` begins with that workspace. The second constructor has no memory: it is for keys and sizes only.
  LoweredMatmul(const Matmul& op, MatmulVariant variant, void* scratch);
  LoweredMatmul(const Matmul& op, MatmulVariant variant);

  // The matmul that replaces the op. The types of fp8 operands are meaningless. Its a_sums are set, never added to.
  const Matmul& matmul() const { return matmul_; }
  // The factors that undo the scales of a and b, if they are fp8.
  struct Scales {
    const float *a = nullptr, *b = nullptr;
  };
  Scales scales() const { return {operands_[0].back, operands_[1].back}; }
  void* workspace() const { return scratch_; }
  std::size_t scratch_bytes() const { return used_; }
  // Issue the kernels before and after the matmul.
  void before(cudaStream_t stream) const;
  void after(cudaStream_t stream) const;

 private:
  // How an operand is rounded: by a kernel into scratch memory, unless RoundToFp8 has done it.
  struct Operand {
    bool is_ready = false;
    float* amax = nullptr;  // absent if it is ready
    float* back = nullptr;
  };
  std::byte* take(std::int64_t bytes);
  Tensor place_operand(int i, const Tensor& from, const Tensor& known_amax, const Tensor& rounded, bool transposed);

  void place_sums();

  const Matmul& op_;
  MatmulVariant variant_;
  Matmul matmul_;
  std::byte* scratch_;
  std::size_t used_ = kWorkspace;
  Operand operands_[2];        // a, b
  std::byte* sums_ = nullptr;  // apply_sums()'s scratch
};

}  // namespace ms::tensor
