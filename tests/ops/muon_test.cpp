// Muon's elementwise ops against plain f64.
#include <cmath>

#include "support.h"

namespace ms::tensor::test {
namespace {

constexpr double kF32 = 1e-6;
const std::int64_t kSizes[] = {0, 1, 19, 1025, 70000};

TEST(Muon, Momentum) {
  for (const std::int64_t n : kSizes) {
    for (const DType gradients : activation_types()) {
      SCOPED_TRACE(label(gradients, 1, n));
      Memory m;
      const MuonMomentum op{.u = m.tensor(DType::bf16, 1, n),
                            .m = m.tensor(DType::f32, 1, n, 0, 0.1),
                            .grad = m.tensor(gradients, 1, n),
                            .factor = m.tensor(DType::f32, 1, 1),
                            .momentum = 0.95F};
      put(op.factor, 0, 0, 0.25);
      const double momentum = double{op.momentum};
      Mat want_m = read(op.m), want_u(1, n);
      for (std::int64_t i = 0; i < n; ++i) {
        const double g = 0.25 * get(op.grad, 0, i);
        want_m(0, i) = momentum * want_m(0, i) + (1 - momentum) * g;
        want_u(0, i) = (1 - momentum) * g + momentum * want_m(0, i);
      }
      everywhere(m, op, [&] {
        EXPECT_TRUE(close(op.m, want_m, kF32));
        EXPECT_TRUE(close(op.u, want_u, kBf16Tolerance));
      });
      put(op.factor, 0, 0, 0.0);
      if (n > 0) put(op.grad, 0, 0, NAN);
      const Memory::Image image = m.save();
      everywhere(m, op, [&] { EXPECT_TRUE(m.save() == image) << "factor 0 must leave everything as it is"; });
    }
  }
}

TEST(Muon, Normalize) {
  struct Row {
    double sum_squares, divisor;
  };
  for (const Row& c : {Row{4, 2}, Row{9.1, round_to_bf16(std::sqrt(9.1))}, Row{0, 1e-7}, Row{1e-20, 1e-7}}) {
    for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{1, 19}, {64, 96}, {300, 257}}) {
      SCOPED_TRACE(testing::Message() << rows << "x" << cols << " by " << c.divisor);
      Memory m;
      Normalize op{.y = m.tensor(DType::bf16, rows, cols),
                   .x = m.tensor(DType::bf16, rows, cols),
                   .sum_squares = m.tensor(DType::f64, 1, 1),
                   .eps = 1e-7F};
      put(op.sum_squares, 0, 0, c.sum_squares);
      Mat want = read(op.x);
      for (double& x : want.values) x /= c.divisor;
      everywhere(m, op, [&] { EXPECT_TRUE(close(op.y, want, kBf16Tolerance)); });
      op.y = op.x;
      everywhere(m, op, [&] { EXPECT_TRUE(close(op.x, want, kBf16Tolerance)); });
    }
  }
}

TEST(Muon, Blend) {
  for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{1, 19}, {64, 96}, {300, 257}}) {
    SCOPED_TRACE(label(DType::bf16, rows, cols));
    Memory m;
    Blend op{.y = m.tensor(DType::bf16, rows, cols),
             .a = m.tensor(DType::bf16, rows, cols),
             .b = m.tensor(DType::f32, rows, cols),
             .alpha = -4.775F,
             .beta = 2.0315F};
    Mat want = read(op.a);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j)
        want(i, j) = double{op.alpha} * want(i, j) + double{op.beta} * get(op.b, i, j);
    everywhere(m, op, [&] { EXPECT_TRUE(close(op.y, want, kBf16Tolerance)); });
    op.y = op.a;
    everywhere(m, op, [&] { EXPECT_TRUE(close(op.a, want, kBf16Tolerance)); });
  }
}

TEST(Muon, Apply) {
  for (const bool has_master : {false, true}) {
    for (const std::int64_t n : kSizes) {
      SCOPED_TRACE(label(has_master ? DType::bf16 : DType::f32, 1, n));
      Memory m;
      const MuonApply op{.param = m.tensor(has_master ? DType::bf16 : DType::f32, 1, n),
                         .master = has_master ? m.tensor(DType::f32, 1, n) : Tensor{},
                         .u = m.tensor(DType::bf16, 1, n),
                         .factor = m.tensor(DType::f32, 1, 1),
                         .lr = 0.01F,
                         .weight_decay = 0.3F,
                         .scale = 1.5F};
      put(op.factor, 0, 0, 0.25);
      const Tensor w = has_master ? op.master : op.param;
      Mat want = read(w);
      for (std::int64_t i = 0; i < n; ++i) {
        want(0, i) -= double{op.lr} * (double{op.weight_decay} * want(0, i) + double{op.scale} * get(op.u, 0, i));
      }
      everywhere(m, op, [&] {
        EXPECT_TRUE(close(w, want, kF32));
        if (!has_master) return;
        for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(get(op.param, 0, i), round_to_bf16(get(op.master, 0, i)));
      });
      put(op.factor, 0, 0, 0.0);
      if (n > 0) put(op.u, 0, 0, NAN);
      const Memory::Image image = m.save();
      everywhere(m, op, [&] { EXPECT_TRUE(m.save() == image) << "factor 0 must leave everything as it is"; });
    }
  }
}

TEST(Muon, RefusesWrongShapes) {
  Memory m;
  MuonApply apply;
  apply.param = m.tensor(DType::bf16, 1, 8);
  EXPECT_DEATH(cpu_kernels().run(apply), "muon_apply: param is bf16");
  const Blend blend{
      .y = m.tensor(DType::bf16, 4, 8, 3), .a = m.tensor(DType::bf16, 4, 8), .b = m.tensor(DType::f32, 4, 8)};
  EXPECT_DEATH(cpu_kernels().run(blend), "blend: gaps between rows");
}

}  // namespace
}  // namespace ms::tensor::test
