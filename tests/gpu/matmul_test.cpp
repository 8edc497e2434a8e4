// Matmuls on a GPU: all transposes, types, strides and edge shapes against f64.
#include <limits>

#include "../ops/matmul_case.h"

namespace ms::tensor::test {
namespace {

// cuBLASLt may round a sum to bf16, and once more after adding the bias or c to it (seen on an H200).
double tolerance_for(const Matmul& op, double of_sums) {
  const double once = tolerance_of(op.c.dtype, of_sums);
  return op.c.dtype == DType::bf16 && (op.bias || op.accumulate) ? 2 * once : once;
}

TEST(Matmul, EveryFormAndShape) {
  for (const Form& f : forms()) {
    for (const Shape& s : kShapes) {
      for (const std::int64_t gap : {0, 3}) {
        SCOPED_TRACE(testing::Message() << to_string(f.type) << "->" << to_string(f.c_type) << " " << s.m << "x" << s.n
                                        << "x" << s.k << (f.transpose_a ? " a'" : "") << (f.transpose_b ? " b'" : "")
                                        << (f.accumulate ? " +=" : "") << (f.bias ? " bias" : "") << " gap " << gap);
        Memory memory;
        const Matmul op = make(memory, s, f, gap);
        const Mat want = matmul_reference(op, s);
        everywhere(memory, op, [&] { EXPECT_TRUE(close(op.c, want, tolerance_for(op, kF32))); });
      }
    }
  }
}

TEST(Matmul, FusesGelu) {
  for_each_gelu([](Memory& memory, const GeluCase& made) {
    const double tolerance = gelu_tolerance(made.op.c.dtype);
    everywhere(memory, made.op, [&] {
      EXPECT_TRUE(close(made.op.c, made.c, tolerance));
      if (made.op.gelu_y) { EXPECT_TRUE(close(made.op.gelu_y, made.y, tolerance)); }
    });
  });
}
TEST(Matmul, SumsItsOperand) {
  for_each_sums([](Memory& memory, const Matmul& op, const Mat& c, const Mat& sums) {
    everywhere(memory, op, [&] {
      EXPECT_TRUE(close(op.c, c, tolerance_for(op, kF32)));
      EXPECT_TRUE(close(op.a_sums, sums, 2 * tolerance_of(op.c.dtype, kF32)));  // may be rounded before it is added
    });
  });
}
TEST(Matmul, Fp8FusesGelu) {
  for (const bool forward : {true, false}) {
    for (const bool bias : {true, false}) {
      const Shape s{80, 96, 144};
      Memory memory;
      GeluCase made = gelu_case(memory, s, {DType::bf16, DType::bf16, false, forward, false, bias}, 0, forward);
      made.op.operands = forward ? Operands::fp8 : Operands::fp8_gradient;
      made.c = matmul_reference(made.op, s);
      for (std::int64_t i = 0; i < s.m; ++i) {
        for (std::int64_t j = 0; j < s.n; ++j) {
          if (forward) made.y(i, j) = gelu(made.c(i, j));
          if (!forward) made.c(i, j) *= gelu_slope(get(made.op.gelu_x, i, j));
        }
      }
      everywhere(memory, made.op, [&] {
        EXPECT_TRUE(close(made.op.c, made.c, 2 * kBf16Tolerance));
        if (forward) { EXPECT_TRUE(close(made.op.gelu_y, made.y, 2 * kBf16Tolerance)); }
      });
    }
  }
}

// GPUs sum fp8 GEMMs in fewer bits than f32 has.
TEST(Matmul, Fp8) {
  constexpr double kEightBits = 2e-3;
  for (const Form& f : forms()) {
    if (f.type != DType::bf16) continue;
    for (const Operands operands : {Operands::fp8, Operands::fp8_gradient}) {
      for (const Shape& s : kFp8Shapes) {
        for (const std::int64_t gap : {0, 3, 8}) {
          const bool is_part = gap == 8;
          SCOPED_TRACE(testing::Message() << to_string(f.c_type) << " " << s.m << "x" << s.n << "x" << s.k
                                          << (f.transpose_a ? " a'" : "") << (f.transpose_b ? " b'" : "")
                                          << (f.accumulate ? " +=" : "") << (f.bias ? " bias" : "") << " gap " << gap);
          Memory memory;
          Matmul op = make(memory, s, f, gap);
          op.operands = operands;
          if (is_part) set_known_amaxes(memory, op);
          const Mat want = matmul_reference(op, s);
          everywhere(memory, op, [&] { EXPECT_TRUE(close(op.c, want, std::max(tolerance_for(op, 0), kEightBits))); });
        }
      }
    }
  }
}

// Operands of any magnitude, down to subnormal bf16.
TEST(Matmul, Fp8OfAnyMagnitude) {
  constexpr Shape kShape{32, 48, 64};
  for (const double size : {1e-37, 1e-30, 1e-3, 1e5, 1e30}) {
    SCOPED_TRACE(size);
    Memory memory;
    const Matmul op{.c = memory.tensor(DType::f32, kShape.m, kShape.n),
                    .a = memory.tensor(DType::bf16, kShape.m, kShape.k, 0, size),
                    .b = memory.tensor(DType::bf16, kShape.k, kShape.n),
                    .bias = {},
                    .operands = Operands::fp8_gradient};
    const Mat want = matmul_reference(op, kShape);
    everywhere(memory, op, [&] { EXPECT_TRUE(close(op.c, want, 2e-3)); });
  }
}
TEST(Matmul, Fp8OfInfinityAndNan) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Memory memory;
    Matmul op = make(memory, {32, 48, 64}, {DType::bf16, DType::f32, false, true, false, false}, 0);
    op.operands = Operands::fp8;
    put(op.b, 2, 3, bad);
    const auto has_no_numbers = [&] {
      for (const double value : read(op.c).values) ASSERT_TRUE(std::isnan(value));
    };
    everywhere(memory, op, has_no_numbers);
    // A finite part of a tensor that is not finite.
    put(op.b, 2, 3, 1);
    set_known_amaxes(memory, op);
    for (const Tensor& amax : {op.a_amax, op.b_amax}) {
      const double good = get(amax, 0, 0);
      put(amax, 0, 0, bad);
      everywhere(memory, op, has_no_numbers);
      put(amax, 0, 0, good);
    }
  }
}

TEST(Matmul, AcceptsEmptyOutputs) {
  for (const Shape& s : {Shape{0, 5, 3}, {5, 0, 3}}) {
    Memory memory;
    everywhere(memory, make(memory, s, {DType::bf16, DType::bf16, false, false, false, false}, 0), [] {});
  }
}

}  // namespace
}  // namespace ms::tensor::test
