#include "diag/gemm.h"

#include <bit>

#include "base/rng.h"

namespace ms::diag {
namespace {

// Every number has all its bits in use: a stuck bit shows only where it is not what it should be anyway.
void fill(const tensor::Tensor& x, std::uint64_t key) {
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const PhiloxBlock random = random_block(0, key, static_cast<std::uint64_t>(i));
    const float value = static_cast<float>(static_cast<std::int32_t>(random[0])) * 0x1p-31F;  // [-1, 1)
    if (x.dtype == tensor::DType::bf16) {
      x.as<tensor::bfloat16>()[i].bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
    } else {
      x.as<float>()[i] = value;
    }
  }
}

}  // namespace

Gemm::Gemm(tensor::Device& device, tensor::DType dtype, std::int64_t side)
    : memory_(device.allocate(
          static_cast<std::size_t>(3 * (side * side * tensor::size_of(dtype) + tensor::Arena::kAlignment)), "a GEMM")) {
  tensor::Arena arena(*memory_);
  a_ = arena.take(dtype, side, side);
  b_ = arena.take(dtype, side, side);
  c_ = arena.take(dtype, side, side);
  fill(a_, 1);
  fill(b_, 2);
}

double Gemm::flops() const {
  const auto side = static_cast<double>(c_.rows);
  return 2 * side * side * side;
}

}  // namespace ms::diag
