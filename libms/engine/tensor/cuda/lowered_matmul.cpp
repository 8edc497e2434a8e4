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

// cuBLASLt sums an operand's terms in 16 bits only, and not in fp8.
bool has_sums(const Matmul& op, int major) {
  return op.a_sums && major >= 8 && op.a.dtype == DType::bf16 && is_aligned(op.a) && is_aligned(op.b) &&
         is_aligned(op.c);
}

}  // namespace

std::vector<MatmulVariant> variants_of(const Matmul& op, int major) {
  std::vector<MatmulVariant> variants;
  if (has_sums(op, major)) variants.push_back({.sums = true, .major = major});
  for (const bool fp8 : {true, false}) {
    if (fp8 && !supports_fp8(op, major)) continue;
    if (has_gelu(op, major)) variants.push_back({.fp8 = fp8, .gelu = true, .major = major});
    variants.push_back({.fp8 = fp8, .major = major});
  }
  return variants;
}

bool rounds_to_bytes(const Tensor& x, int major) {
  return major >= 9 && is_aligned(x) && x.rows % kVectorBytes == 0 && x.cols % kVectorBytes == 0;
}

void round_to_fp8(const RoundToFp8& op, int major, void* scratch, cudaStream_t stream) {
  auto* amax = op.amax.as<float>();
  if (!op.has_amax) kernels::compute_amax(stream, amax, kernel_matrix(op.x));
  if (rounds_to_bytes(op.x, major)) {
    kernels::fp8_quantize_both(stream, op.out.data, op.out.data + op.x.numel(), amax + kAmaxOfDevice,
                               kernel_matrix(op.x), amax, op.is_gradient,
                               {kernel_matrix(op.sums), op.accumulate, scratch});
  } else {
    kernels::fp8_round(stream, op.out.data, kernel_matrix(op.x), amax, op.is_gradient);
    if (op.sums) kernels::column_sum(stream, kernel_matrix(op.sums), kernel_matrix(op.x), op.accumulate, scratch);
  }
}

void apply_gelu(const Matmul& op, cudaStream_t stream) {
  if (op.gelu_y) kernels::gelu_fwd(stream, kernel_matrix(op.gelu_y), kernel_matrix(op.c));
  if (op.gelu_x) kernels::gelu_bwd(stream, kernel_matrix(op.c), kernel_matrix(op.c), kernel_matrix(op.gelu_x));
}

void apply_sums(const Matmul& op, void* scratch, cudaStream_t stream) {
  kernels::column_sum(stream, kernel_matrix(op.a_sums), kernel_matrix(op.a), op.accumulate, scratch);
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
  if (op.a_sums) place_sums();
  if (op.operands == Operands::as_given) return;
  // Rows of an fp8 operand are terms of sums.
  matmul_.a = place_operand(0, op.a, op.a_amax, op.a_rounded, op.transpose_a);
  matmul_.b = place_operand(1, op.b, op.b_amax, op.b_rounded, !op.transpose_b);
  if (variant.fp8) {
    matmul_.transpose_a = false;
    matmul_.transpose_b = true;
  } else {
    matmul_.operands = Operands::as_given;
  }
}

// cuBLASLt cannot add to sums.
void LoweredMatmul::place_sums() {
  if (!variant_.sums) {
    matmul_.a_sums = {};
    sums_ = take(static_cast<std::int64_t>(sums_bytes(op_)));
  } else if (op_.accumulate) {
    matmul_.a_sums.data = take(op_.a_sums.size_bytes());
  }
}

// `transposed`: as an fp8 operand.
Tensor LoweredMatmul::place_operand(int i, const Tensor& from, const Tensor& known_amax, const Tensor& rounded,
                                    bool transposed) {
  Operand& operand = operands_[i];
  const std::int64_t rows = variant_.fp8 && transposed ? from.cols : from.rows, cols = from.numel() / rows;
  operand.is_ready = rounded && rounds_to_bytes(from, variant_.major) == variant_.fp8;
  if (operand.is_ready) {
    operand.back = known_amax.as<float>() + kAmaxOfDevice;
    return {rounded.data + (variant_.fp8 && transposed ? from.numel() : 0), rows, cols, cols, from.dtype};
  }
  auto* const numbers = reinterpret_cast<float*>(take(2 * sizeof(float)));
  operand.back = numbers;
  operand.amax = known_amax ? known_amax.as<float>() : numbers + 1;
  return {take(from.numel() * (variant_.fp8 ? 1 : size_of(from.dtype))), rows, cols, cols, from.dtype};
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
  const auto round_operand = [&](int i, const Tensor& from, bool is_known, const Tensor& to, Fp8 format,
                                 bool transposed) {
    const Operand& operand = operands_[i];
    if (operand.is_ready) return;
    const bool is_e5m2 = format == Fp8::e5m2;
    if (!is_known) kernels::compute_amax(stream, operand.amax, kernel_matrix(from));
    if (variant_.fp8) {
      kernels::fp8_quantize(stream, to.data, operand.back, kernel_matrix(from), operand.amax, is_e5m2, transposed);
    } else {
      kernels::fp8_round(stream, to.data, kernel_matrix(from), operand.amax, is_e5m2);
    }
  };
  const bool knows_a = static_cast<bool>(op_.a_amax), knows_b = static_cast<bool>(op_.b_amax);
  round_operand(0, op_.a, knows_a, matmul_.a, fp8_of_a(op_.operands), op_.transpose_a);
  round_operand(1, op_.b, knows_b, matmul_.b, kFp8OfB, !op_.transpose_b);
}

void LoweredMatmul::after(cudaStream_t stream) const {
  if (!variant_.gelu) apply_gelu(op_, stream);
  if (sums_ != nullptr) return apply_sums(op_, sums_, stream);
  if (!matmul_.a_sums || !op_.accumulate) return;
  const kernels::Matrix sums = kernel_matrix(op_.a_sums);
  kernels::add(stream, sums, sums, kernel_matrix(matmul_.a_sums), {});
}

}  // namespace ms::tensor
