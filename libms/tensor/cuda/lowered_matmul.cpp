#include "tensor/cuda/lowered_matmul.h"

#include "tensor/cuda/cuda_ops.h"
#include "tensor/fp8.h"

namespace ms::tensor {
namespace {

// cuBLASLt requires a bias of the result's type.
bool converts_bias(const Matmul& op) { return op.bias && op.bias.dtype != op.c.dtype; }

std::int64_t terms_of(const Matmul& op) { return op.transpose_a ? op.a.rows : op.a.cols; }

constexpr std::int64_t kVectorBytes = 16;
bool is_aligned(const Tensor& t) {
  return reinterpret_cast<std::uintptr_t>(t.data) % kVectorBytes == 0 && t.ld * size_of(t.dtype) % kVectorBytes == 0 &&
         t.cols * size_of(t.dtype) % kVectorBytes == 0;
}

// An fp8 GEMM requires operands whose summed dimension is contiguous, and alignment to 16 bytes. GPUs of compute
// capability 8.9 would convert in software: kernels are not built for them.
bool supports_fp8(const Matmul& op, int major) {
  return op.operands != Operands::as_given && major >= 9 && !converts_bias(op) && is_aligned(op.a) &&
         is_aligned(op.b) && is_aligned(op.c) && terms_of(op) % kVectorBytes == 0 && op.c.cols % kVectorBytes == 0;
}
// Before Hopper a bf16 GEMM with a fused GELU can be slower than the two apart (llm.c, pull request 338). A bias can
// only be fused with gelu_y.
bool has_gelu(const Matmul& op, int major) {
  const Tensor& gelu = op.gelu_y ? op.gelu_y : op.gelu_x;
  return gelu && major >= 9 && !(op.gelu_x && op.bias) && op.c.dtype == DType::bf16 && is_aligned(op.c) &&
         is_aligned(gelu);
}

}  // namespace

std::vector<MatmulVariant> variants_of(const Matmul& op, int major) {
  std::vector<MatmulVariant> variants;
  for (const bool fp8 : {true, false}) {
    if (fp8 && !supports_fp8(op, major)) continue;
    if (has_gelu(op, major)) variants.push_back({fp8, true});
    variants.push_back({fp8, false});
  }
  return variants;
}

void apply_gelu(const Matmul& op, cudaStream_t stream) {
  if (op.gelu_y) kernels::gelu_fwd(stream, kernel_matrix(op.gelu_y), kernel_matrix(op.c));
  if (op.gelu_x) kernels::gelu_bwd(stream, kernel_matrix(op.c), kernel_matrix(op.c), kernel_matrix(op.gelu_x));
}

std::uint32_t alignment_of(const Tensor& t) {
  if (!t) return 0;
  constexpr std::uintptr_t kMost = 256;
  const auto at = reinterpret_cast<std::uintptr_t>(t.data) | kMost;
  return static_cast<std::uint32_t>(at & (~at + 1));
}

LoweredMatmul::LoweredMatmul(const Matmul& op, MatmulVariant variant, void* scratch)
    : op_(op), variant_(variant), matmul_(op), scratch_(static_cast<std::byte*>(scratch)) {
  if (converts_bias(op)) matmul_.bias = {take(op.c.cols * size_of(op.c.dtype)), 1, op.c.cols, op.c.cols, op.c.dtype};
  if (!variant.gelu) matmul_.gelu_y = matmul_.gelu_x = {};
  if (op.operands == Operands::as_given) return;
  // Two scales, then two amaxes.
  scales_ = reinterpret_cast<float*>(take(4 * sizeof(float)));
  if (variant.fp8) {
    const std::int64_t k = terms_of(op);
    matmul_.a = {take(op.a.numel()), op.c.rows, k, k, op.a.dtype};
    matmul_.b = {take(op.b.numel()), op.c.cols, k, k, op.b.dtype};
    matmul_.transpose_a = false;
    matmul_.transpose_b = true;
  } else {
    matmul_.a = {take(op.a.numel() * size_of(op.a.dtype)), op.a.rows, op.a.cols, op.a.cols, op.a.dtype};
    matmul_.b = {take(op.b.numel() * size_of(op.b.dtype)), op.b.rows, op.b.cols, op.b.cols, op.b.dtype};
    matmul_.operands = Operands::as_given;
  }
}
// The fake address is a multiple of 256, as that of real memory is.
LoweredMatmul::LoweredMatmul(const Matmul& op, MatmulVariant variant)
    : LoweredMatmul(op, variant, reinterpret_cast<void*>(std::uintptr_t{256})) {}

std::byte* LoweredMatmul::take(std::int64_t bytes) {
  std::byte* at = scratch_ + used_;
  used_ += (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
  return at;
}

void LoweredMatmul::before(cudaStream_t stream) const {
  if (converts_bias(op_)) kernels::convert(stream, kernel_matrix(matmul_.bias), kernel_matrix(op_.bias));
  if (op_.operands == Operands::as_given) return;
  const auto round_operand = [&](int i, const Tensor& from, const Tensor& known, const Tensor& to, Fp8 format,
                                 bool transposed) {
    const bool is_e5m2 = format == Fp8::e5m2;
    float* amax = known ? known.as<float>() : scales_ + 2 + i;
    if (!known) kernels::compute_amax(stream, amax, kernel_matrix(from));
    if (matmul_.operands == Operands::as_given) {
      kernels::fp8_round(stream, to.data, kernel_matrix(from), amax, is_e5m2);
    } else {
      kernels::fp8_quantize(stream, to.data, scales_ + i, kernel_matrix(from), amax, is_e5m2, transposed);
    }
  };
  round_operand(0, op_.a, op_.a_amax, matmul_.a, fp8_of_a(op_.operands), op_.transpose_a);
  round_operand(1, op_.b, op_.b_amax, matmul_.b, kFp8OfB, !op_.transpose_b);
}

void LoweredMatmul::after(cudaStream_t stream) const {
  if (!variant_.gelu) apply_gelu(op_, stream);
}

}  // namespace ms::tensor
