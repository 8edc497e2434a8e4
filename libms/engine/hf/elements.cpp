#include "hf/elements.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace ms::hf {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors and checkpoints are little-endian");

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float widen_bf16(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

float widen_f16(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16, exponent = bits >> 10 & 0x1FU,
                      fraction = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13);  // infinite, NaN
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;  // zero and what is below the normal numbers
  return sign != 0 ? -magnitude : magnitude;
}

std::uint16_t narrow_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);  // NaN, made quiet
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

template <class From, class To, class Function>
void each(std::span<const std::byte> source, std::span<std::byte> out, Function function) {
  const std::size_t count = source.size() / sizeof(From);
  MS_ASSERT(out.size() == count * sizeof(To), "{} elements into {} bytes", count, out.size());
  for (std::size_t i = 0; i < count; ++i) {
    const To value = function(load<From>(source.data() + i * sizeof(From)));
    std::memcpy(out.data() + i * sizeof(To), &value, sizeof value);
  }
}

template <class T>
void transpose_elements(const std::byte* source, std::int64_t source_ld, std::int64_t rows, std::int64_t cols,
                        std::byte* out) {
  constexpr std::int64_t kTile = 32;  // two tiles stay in the first cache whatever the strides are
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (std::int64_t c0 = 0; c0 < cols; c0 += kTile) {
      for (std::int64_t c = c0; c < std::min(c0 + kTile, cols); ++c) {
        for (std::int64_t r = r0; r < std::min(r0 + kTile, rows); ++r) {
          std::memcpy(out + (c * rows + r) * kBytes, source + (r * source_ld + c) * kBytes, sizeof(T));
        }
      }
    }
  }
}

}  // namespace

tensor::DType stored_as(Dtype dtype) {
  MS_ASSERT(dtype != Dtype::other, "not a type of parameters");
  return dtype == Dtype::bf16 ? tensor::DType::bf16 : tensor::DType::f32;
}

void convert(Dtype from, std::span<const std::byte> source, tensor::DType to, std::span<std::byte> out) {
  MS_ASSERT(from != Dtype::other && (to == tensor::DType::f32 || to == tensor::DType::bf16), "not types of parameters");
  const bool same = from == Dtype::f32 ? to == tensor::DType::f32 : from == Dtype::bf16 && to == tensor::DType::bf16;
  if (same) {
    MS_ASSERT(source.size() == out.size(), "{} bytes into {}", source.size(), out.size());
    if (!source.empty()) std::memcpy(out.data(), source.data(), source.size());
  } else if (from == Dtype::f32) {
    each<float, std::uint16_t>(source, out, narrow_bf16);
  } else {
    MS_ASSERT(to == tensor::DType::f32, "f16 becomes f32 only");
    each<std::uint16_t, float>(source, out, from == Dtype::bf16 ? widen_bf16 : widen_f16);
  }
}

void transpose(const std::byte* source, std::int64_t source_ld, std::int64_t rows, std::int64_t cols,
               std::int64_t element_bytes, std::byte* out) {
  MS_ASSERT(element_bytes == 2 || element_bytes == 4, "elements of {} bytes", element_bytes);
  if (element_bytes == 4) {
    transpose_elements<std::uint32_t>(source, source_ld, rows, cols, out);
  } else {
    transpose_elements<std::uint16_t>(source, source_ld, rows, cols, out);
  }
}

}  // namespace ms::hf
