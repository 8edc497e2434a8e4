// fp8 operands: every number of both formats, every bf16 rounded to them, scales of any size, and matmuls.
#include <bit>
#include <limits>

#include "matmul_case.h"
#include "tensor/cpu_matmul.h"

namespace ms::tensor::test {
namespace {

using testing::Message;

TEST(Fp8, RoundsEveryBf16ToTheNearest) {
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

TEST(Fp8, ScaleIsTheLargestPowerOfTwoThatFits) {
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

TEST(Fp8, RoundsTensorsOfAnyMagnitude) {
  for (const Fp8 format : {Fp8::e4m3, Fp8::e5m2}) {
    for (const double size : {1e-37, 1e-30, 1e-3, 1.0, 1e5, 1e30}) {
      SCOPED_TRACE(size);
      Memory memory;
      const Tensor x = memory.tensor(DType::bf16, 7, 33, 3, size), y = memory.tensor(DType::bf16, 7, 33, 5);
      const Mat want = rounded(read(x), format);
      round_tensor_to_fp8(y, x, amax_of(x), format);
      EXPECT_EQ(read(y).values, want.values);
      EXPECT_TRUE(memory.guards_intact());
    }
  }
}

TEST(Fp8, InfinityAndNanGiveNan) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Memory memory;
    Matmul op = make(memory, {4, 5, 6}, {DType::bf16, DType::f32, false, false, false, false}, 0);
    op.operands = Operands::fp8;
    put(op.a, 2, 3, bad);
    MatmulCache cache;
    cache.run(op);
    for (const double value : read(op.c).values) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(Fp8, MatmulsOfRoundedOperands) {
  MatmulCache cache;
  for (const Form& f : forms()) {
    if (f.type != DType::bf16) continue;
    for (const Operands operands : {Operands::fp8, Operands::fp8_gradient}) {
      for (const Shape& s : kFp8Shapes) {
        for (const bool is_part : {false, true}) {
          SCOPED_TRACE(Message() << to_string(f.c_type) << " " << s.m << "x" << s.n << "x" << s.k
                                 << (f.transpose_a ? " a'" : "") << (f.transpose_b ? " b'" : "")
                                 << (f.accumulate ? " +=" : "") << (f.bias ? " bias" : "") << (is_part ? " part" : ""));
          Memory memory;
          Matmul op = make(memory, s, f, 3);
          op.operands = operands;
          if (is_part) set_known_amaxes(memory, op);
          const Mat want = matmul_reference(op, s);
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
