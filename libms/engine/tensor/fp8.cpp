#include "tensor/fp8.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>

#include "tensor/team.h"

namespace ms::tensor {
namespace {

struct Format {
  int mantissa_bits;
  float least_normal, greatest;
  float unit;  // spacing of the subnormal numbers
};
constexpr Format kE4m3{.mantissa_bits = 3, .least_normal = 0x1p-6F, .greatest = 448, .unit = 0x1p-9F};
constexpr Format kE5m2{.mantissa_bits = 2, .least_normal = 0x1p-14F, .greatest = 57344, .unit = 0x1p-16F};
constexpr const Format& format_of(Fp8 format) { return format == Fp8::e4m3 ? kE4m3 : kE5m2; }

float to_float(bfloat16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }

}  // namespace

int fp8_shift(float amax, Fp8 format) {
  constexpr int kLeast = -126, kMost = 110;
  if (amax == 0) return 0;
  int exponent = 0, most = 0;
  const float mantissa = std::frexp(amax, &exponent), of_most = std::frexp(format_of(format).greatest, &most);
  return std::clamp(most - exponent - (mantissa > of_most ? 1 : 0), kLeast, kMost);
}

float round_to_fp8(float x, Fp8 format) {
  const auto& [mantissa_bits, least_normal, greatest, unit] = format_of(format);
  if (std::isnan(x)) return x;
  if (std::abs(x) < least_normal) {
    // Adding `much` drops all bits below a unit and rounds to even.
    const float much = unit * 0x1.8p23F;
    return std::copysign((x + much) - much, x);
  }
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const int dropped = 23 - mantissa_bits;
  const std::uint32_t odd = (bits >> dropped) & 1, half = (1U << (dropped - 1)) - 1;
  const std::uint32_t kept = (std::min(bits & 0x7fffffffU, 0x7f000000U) + odd + half) >> dropped << dropped;
  return std::copysign(std::min(std::bit_cast<float>(kept), greatest), x);
}

float amax_of(const Tensor& x) {
  // Without the sign bit, bit patterns sort like magnitudes, and infinities and NaN are above all else.
  std::atomic<std::uint32_t> amax = 0;
  share_work(x.rows, even_part(x.rows), [&](std::int64_t begin, std::int64_t end, int) {
    std::uint32_t own = 0;
    for (std::int64_t row = begin; row < end; ++row) {
      const auto* from = x.as<const bfloat16>() + row * x.ld;
      for (std::int64_t col = 0; col < x.cols; ++col) own = std::max(own, from[col].bits & 0x7fffU);
    }
    std::uint32_t seen = amax.load();
    while (seen < own && !amax.compare_exchange_weak(seen, own)) {}
  });
  return std::bit_cast<float>(amax.load() << 16);
}

void round_tensor_to_fp8(const Tensor& dst, const Tensor& src, float amax, Fp8 format) {
  const bool is_finite = std::isfinite(amax);
  const int shift = is_finite ? fp8_shift(amax, format) : 0;
  const float scale = std::ldexp(1.0F, shift), back = std::ldexp(1.0F, -shift);
  share_work(src.rows, even_part(src.rows), [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const auto* from = src.as<const bfloat16>() + row * src.ld;
      auto* to = dst.as<bfloat16>() + row * dst.ld;
      for (std::int64_t col = 0; col < src.cols; ++col) {
        const float x = is_finite ? round_to_fp8(to_float(from[col]) * scale, format) * back
                                  : std::numeric_limits<float>::quiet_NaN();
        to[col] = {static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16)};  // exact: the value is a bf16
      }
    }
  });
}

}  // namespace ms::tensor
