// Factors of eight bits: every number of both formats, every bf16 rounded to them, scales of any size, and products.
#include <bit>
#include <limits>

#include "matmul_case.h"
#include "tensor/cpu_matmul.h"

namespace ms::tensor::test {
namespace {

using testing::Message;

TEST(Fp8, EveryBf16IsRoundedToTheNearest) {
  for (const Fp8 format : {Fp8::e4m3, Fp8::e5m2}) {
    const std::vector<double> magnitudes = fp8_magnitudes(format);
    for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) {
      const float x = std::bit_cast<float>(bits << 16);
      if (!std::isfinite(x) || std::abs(x) > magnitudes.back()) continue;
      ASSERT_EQ(round_to_fp8(x, format), nearest_fp8(x, magnitudes)) << x;
    }
    const auto largest = static_cast<float>(magnitudes.back());
    EXPECT_EQ(round_to_fp8(1e9F, format), largest);
    EXPECT_EQ(round_to_fp8(-1e9F, format), -largest);
    EXPECT_TRUE(std::isnan(round_to_fp8(std::numeric_limits<float>::quiet_NaN(), format)));
  }
}

TEST(Fp8, ThePowerOfTwoIsTheLargestThatFits) {
  for (const Fp8 format : {Fp8::e4m3, Fp8::e5m2}) {
    const double most = fp8_magnitudes(format).back();
    for (std::uint32_t bits = 1; bits < 0x7f80; ++bits) {
      const float largest = std::bit_cast<float>(bits << 16);
      const int shift = fp8_shift(largest, format);
      if (shift > -126) { ASSERT_LE(std::ldexp(double{largest}, shift), most) << largest; }
      if (shift < 110) { ASSERT_GT(std::ldexp(double{largest}, shift + 1), most) << largest; }
    }
    EXPECT_EQ(fp8_shift(0, format), 0);
  }
}

TEST(Fp8, TensorsOfAnySizeBecomeBf16OfTheFormat) {
  for (const Fp8 format : {Fp8::e4m3, Fp8::e5m2}) {
    for (const double size : {1e-37, 1e-30, 1e-3, 1.0, 1e5, 1e30}) {
      SCOPED_TRACE(size);
      Memory memory;
      const Tensor x = memory.tensor(DType::bf16, 7, 33, 3, size), y = memory.tensor(DType::bf16, 7, 33, 5);
      const Mat want = rounded(read(x), format);
      round_tensor_to_fp8(y, x, largest_magnitude(x), format);
      EXPECT_EQ(read(y).values, want.values);
      EXPECT_TRUE(memory.guards_intact());
    }
  }
}

TEST(Fp8, WhatIsNotFiniteMakesNoNumbers) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Memory memory;
    Matmul op = make(memory, {4, 5, 6}, {DType::bf16, DType::f32, false, false, false, false}, 0);
    op.factors = Factors::fp8;
    put(op.a, 2, 3, bad);
    MatmulCache cache;
    cache.run(op);
    for (const double value : read(op.c).values) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Fp8, ProductsOfRoundedFactors) {
  MatmulCache cache;
  for (const Form& f : forms()) {
    if (f.type != DType::bf16) continue;
    for (const Factors factors : {Factors::fp8, Factors::fp8_gradient}) {
      for (const Shape& s : kFp8Shapes) {
        for (const bool is_part : {false, true}) {
          SCOPED_TRACE(Message() << to_string(f.c_type) << " " << s.m << "x" << s.n << "x" << s.k
                                 << (f.transpose_a ? " a'" : "") << (f.transpose_b ? " b'" : "")
                                 << (f.accumulate ? " +=" : "") << (f.bias ? " bias" : "") << (is_part ? " part" : ""));
          Memory memory;
          Matmul op = make(memory, s, f, 3);
          op.factors = factors;
          if (is_part) know_magnitudes(memory, op);
          const Mat want = product(op, s);
          cache.run(op);
          EXPECT_TRUE(close(op.c, want, tolerance_of(f.c_type, kF32)));
          EXPECT_TRUE(memory.guards_intact());
        }
      }
    }
  }
}

}  // namespace
}  // namespace ms::tensor::test
