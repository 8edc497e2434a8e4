// Conversions against arithmetic that shares nothing with them, and transposition of a block.
#include "hf/elements.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace ms::hf {
namespace {

using tensor::DType;

template <class To, class From>
To converted(Dtype from, From value, DType to) {
  To result;
  convert(from, std::as_bytes(std::span(&value, 1)), to, std::as_writable_bytes(std::span(&result, 1)));
  return result;
}

TEST(Convert, WidensEveryHalf) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = converted<float>(Dtype::f16, static_cast<std::uint16_t>(bits), DType::f32);
    const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
    double expected = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) expected = fraction == 0 ? INFINITY : NAN;
    if (bits >> 15 != 0) expected = -expected;
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(double{value}, expected) << bits;
      ASSERT_EQ(std::signbit(value), std::signbit(expected)) << bits;
    }
  }
}

TEST(Convert, WidensAndNarrowsEveryBfloat) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = converted<float>(Dtype::bf16, static_cast<std::uint16_t>(bits), DType::f32);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16);
    const auto back = converted<std::uint16_t>(Dtype::f32, value, DType::bf16);
    if (std::isnan(value)) {
      ASSERT_EQ(back, bits | 0x40U);  // a quiet one of the same sign
    } else {
      ASSERT_EQ(back, bits);
    }
  }
}

TEST(Convert, NarrowsToTheNearestAndTiesToEven) {
  for (std::uint64_t i = 0; i < 20000; ++i) {
    // Bits of all exponents; every fourth is a tie exactly.
    auto bits = static_cast<std::uint32_t>(random_u64(1, rng_key("narrow"), i));
    if (i % 4 == 0) bits = (bits & 0xFFFF0000U) | 0x8000U;
    const auto value = std::bit_cast<float>(bits);
    if (!std::isfinite(value)) continue;
    const auto narrow = converted<std::uint16_t>(Dtype::f32, value, DType::bf16);
    const std::uint32_t below = bits >> 16, above = below + 1;
    const auto distance = [&](std::uint32_t candidate) {
      // One beyond the largest finite number counts as 2^128, which is where rounding to infinity begins to be nearer.
      const auto wide = std::bit_cast<float>(candidate << 16);
      return std::abs(std::isinf(wide) ? std::copysign(0x1p128, wide) - double{value} : double{wide} - double{value});
    };
    const double down = distance(below), up = distance(above);
    const std::uint32_t expected = down < up ? below : up < down ? above : below % 2 == 0 ? below : above;
    ASSERT_EQ(narrow, expected) << value;
  }
  EXPECT_EQ(converted<std::uint16_t>(Dtype::f32, INFINITY, DType::bf16), 0x7F80);
  EXPECT_EQ(converted<std::uint16_t>(Dtype::f32, -0.0F, DType::bf16), 0x8000);
}

TEST(Convert, ReadsFromAnyAddress) {
  const float value = 1.5F;
  std::byte bytes[5];
  std::memcpy(bytes + 1, &value, 4);
  float out = 0;
  convert(Dtype::f32, std::span(bytes).subspan(1), DType::f32, std::as_writable_bytes(std::span(&out, 1)));
  EXPECT_EQ(out, value);
}

TEST(StoredAs, KeepsBf16AndWidensTheRest) {
  EXPECT_EQ(stored_as(Dtype::bf16), DType::bf16);
  EXPECT_EQ(stored_as(Dtype::f16), DType::f32);
  EXPECT_EQ(stored_as(Dtype::f32), DType::f32);
}

template <class T>
void expect_transposed(std::int64_t rows, std::int64_t cols, std::int64_t ld) {
  std::vector<T> source(static_cast<std::size_t>(rows * ld)), out(static_cast<std::size_t>(rows * cols));
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<T>(i);
  transpose(reinterpret_cast<const std::byte*>(source.data()), ld, rows, cols, sizeof(T),
            reinterpret_cast<std::byte*>(out.data()));
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      ASSERT_EQ(out[static_cast<std::size_t>(c * rows + r)], static_cast<T>(r * ld + c)) << r << " " << c;
    }
  }
}

TEST(Transpose, TurnsBlocksOfEveryShape) {
  for (const std::int64_t rows : {1, 7, 32, 65}) {
    for (const std::int64_t cols : {1, 5, 32, 70}) {
      expect_transposed<std::uint16_t>(rows, cols, cols + 3);
      expect_transposed<std::uint32_t>(rows, cols, cols);
    }
  }
}

}  // namespace
}  // namespace ms::hf
