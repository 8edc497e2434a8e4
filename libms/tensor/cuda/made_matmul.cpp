#include "tensor/cuda/made_matmul.h"

#include "tensor/cuda/cuda_ops.h"
#include "tensor/fp8.h"

namespace ms::tensor {
namespace {

// cuBLASLt takes a bias of the result's type alone.
bool converts_bias(const Matmul& op) { return op.bias && op.bias.dtype != op.c.dtype; }

std::int64_t terms_of(const Matmul& op) { return op.transpose_a ? op.a.rows : op.a.cols; }

constexpr std::int64_t kPiece = 16;  // bytes
bool in_pieces(const Tensor& t) {
  return reinterpret_cast<std::uintptr_t>(t.data) % kPiece == 0 && t.ld * size_of(t.dtype) % kPiece == 0 &&
         t.cols * size_of(t.dtype) % kPiece == 0;
}

// Products of eight bits take factors whose sums run along memory, in pieces. GPUs of 8.9 would convert in software:
// kernels are not built for them.
bool has_eight_bits(const Matmul& op, int major) {
  return op.factors != Factors::as_given && major >= 9 && !converts_bias(op) && in_pieces(op.a) && in_pieces(op.b) &&
         in_pieces(op.c) && terms_of(op) % kPiece == 0 && op.c.cols % kPiece == 0;
}
// On GPUs before Hopper others have found a product of bf16 that goes on to a GELU slower than both apart (llm.c, pull
// request 338). A bias goes with gelu_y alone.
bool has_gelu(const Matmul& op, int major) {
  const Tensor& gelu = op.gelu_y ? op.gelu_y : op.gelu_x;
  return gelu && major >= 9 && !(op.gelu_x && op.bias) && op.c.dtype == DType::bf16 && in_pieces(op.c) &&
         in_pieces(gelu);
}

}  // namespace

std::vector<MatmulWay> ways_of(const Matmul& op, int major) {
  std::vector<MatmulWay> ways;
  for (const bool eight_bits : {true, false}) {
    if (eight_bits && !has_eight_bits(op, major)) continue;
    if (has_gelu(op, major)) ways.push_back({eight_bits, true});
    ways.push_back({eight_bits, false});
  }
  return ways;
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

MadeMatmul::MadeMatmul(const Matmul& op, MatmulWay way, void* scratch)
    : op_(op), way_(way), product_(op), scratch_(static_cast<std::byte*>(scratch)) {
  if (converts_bias(op)) product_.bias = {take(op.c.cols * size_of(op.c.dtype)), 1, op.c.cols, op.c.cols, op.c.dtype};
  if (!way.gelu) product_.gelu_y = product_.gelu_x = {};
  if (op.factors == Factors::as_given) return;
  // Two scales, and behind them two magnitudes.
  scales_ = reinterpret_cast<float*>(take(4 * sizeof(float)));
  if (way.eight_bits) {
    const std::int64_t k = terms_of(op);
    product_.a = {take(op.a.numel()), op.c.rows, k, k, op.a.dtype};
    product_.b = {take(op.b.numel()), op.c.cols, k, k, op.b.dtype};
    product_.transpose_a = false;
    product_.transpose_b = true;
  } else {
    product_.a = {take(op.a.numel() * size_of(op.a.dtype)), op.a.rows, op.a.cols, op.a.cols, op.a.dtype};
    product_.b = {take(op.b.numel() * size_of(op.b.dtype)), op.b.rows, op.b.cols, op.b.cols, op.b.dtype};
    product_.factors = Factors::as_given;
  }
}
// At an address that is a multiple of 256, as memory's are.
MadeMatmul::MadeMatmul(const Matmul& op, MatmulWay way)
    : MadeMatmul(op, way, reinterpret_cast<void*>(std::uintptr_t{256})) {}

std::byte* MadeMatmul::take(std::int64_t bytes) {
  std::byte* at = scratch_ + used_;
  used_ += (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
  return at;
}

void MadeMatmul::before(cudaStream_t stream) const {
  if (converts_bias(op_)) kernels::convert(stream, kernel_matrix(product_.bias), kernel_matrix(op_.bias));
  if (op_.factors == Factors::as_given) return;
  const auto make = [&](int i, const Tensor& from, const Tensor& known, const Tensor& to, Fp8 format, bool transposed) {
    const bool is_e5m2 = format == Fp8::e5m2;
    float* largest = known ? known.as<float>() : scales_ + 2 + i;
    if (!known) kernels::largest_magnitude(stream, largest, kernel_matrix(from));
    if (product_.factors == Factors::as_given) {
      kernels::fp8_round(stream, to.data, kernel_matrix(from), largest, is_e5m2);
    } else {
      kernels::fp8_quantize(stream, to.data, scales_ + i, kernel_matrix(from), largest, is_e5m2, transposed);
    }
  };
  make(0, op_.a, op_.a_largest, product_.a, fp8_of_a(op_.factors), op_.transpose_a);
  make(1, op_.b, op_.b_largest, product_.b, kFp8OfB, !op_.transpose_b);
}

void MadeMatmul::after(cudaStream_t stream) const {
  if (!way_.gelu) apply_gelu(op_, stream);
}

}  // namespace ms::tensor
