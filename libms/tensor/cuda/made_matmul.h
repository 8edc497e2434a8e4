// How a product of the op list becomes one of cuBLASLt's: what is made of its bias and its factors before, and of its
// result afterwards.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/ops.h"

namespace ms::tensor {

// What cuBLASLt does, rather than kernels of ours beside it.
struct MatmulWay {
  bool eight_bits = false;  // multiplies factors in eight bits; otherwise rounded ones as the bf16 that they are, too
  bool gelu = false;        // applies what is to be done to the result
};
// Those that this GPU and the product's shape allow, best first; the last is the one that always is. `major` is that
// of the GPU's compute capability.
std::vector<MatmulWay> ways_of(const Matmul& op, int major);

// Issues what is still to be done to a result that cuBLASLt has left in c.
void apply_gelu(const Matmul& op, cudaStream_t stream);

// Of its first element, in bytes; all that algorithms ask for. 0: there is none.
std::uint32_t alignment_of(const Tensor& t);

// cuBLASLt's result, and the other matrix beside it that it writes or reads: gelu_y and c, or c and gelu_x.
struct ResultAndAux {
  explicit ResultAndAux(const Matmul& product)
      : result(product.gelu_y ? product.gelu_y : product.c), aux(product.gelu_y ? product.c : product.gelu_x) {}
  Tensor result, aux;
};

class MadeMatmul {
 public:
  // Scratch that every product may use: what Hopper's algorithms were made for.
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;

  // `scratch` begins with that workspace. Without memory, where only forms are asked for.
  MadeMatmul(const Matmul& op, MatmulWay way, void* scratch);
  MadeMatmul(const Matmul& op, MatmulWay way);

  // What is multiplied in place of the op. Of factors in eight bits, the types say nothing.
  const Matmul& product() const { return product_; }
  // Of the first and the second factor, where they are of eight bits.
  const float* scales() const { return scales_; }
  void* workspace() const { return scratch_; }
  std::size_t scratch_bytes() const { return used_; }
  // Issues what comes before the product and what comes after it.
  void before(cudaStream_t stream) const;
  void after(cudaStream_t stream) const;

 private:
  std::byte* take(std::int64_t bytes);

  const Matmul& op_;
  MatmulWay way_;
  Matmul product_;
  std::byte* scratch_;
  std::size_t used_ = kWorkspace;
  float* scales_ = nullptr;
};

}  // namespace ms::tensor
