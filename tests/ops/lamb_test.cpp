// LAMB's two ops against plain f64: moments and norms, then the update with the norms of the whole parameter.
#include <cmath>
#include <limits>

#include "support.h"

namespace ms::tensor::test {
namespace {

constexpr double kLambF32 = 1e-6;  // a dozen roundings

LambMoments moments_of(Memory& m, std::int64_t n, DType gradients = DType::f32) {
  const LambMoments op{.norms = m.tensor(DType::f64, 1, 2),
                       .m = m.tensor(DType::f32, 1, n, 0, 0.1),
                       .v = m.tensor(DType::f32, 1, n),
                       .w = m.tensor(DType::f32, 1, n),
                       .grad = m.tensor(gradients, 1, n),
                       .factor = m.tensor(DType::f32, 1, 1),
                       .beta1 = 0.9F,
                       .beta2 = 0.95F,
                       .eps = 1e-6F,
                       .weight_decay = 0.3F,
                       .correction1 = 0.271F,
                       .correction2 = 0.142625F};
  for (std::int64_t i = 0; i < n; ++i) put(op.v, 0, i, std::abs(get(op.v, 0, i)));
  put(op.factor, 0, 0, 0.25);
  return op;
}

// Returns u of one element, from updated moments.
template <class Lamb>
double step_of(const Lamb& op, double m, double v, double w) {
  return m / double{op.correction1} / (std::sqrt(v / double{op.correction2}) + double{op.eps}) +
         double{op.weight_decay} * w;
}

struct Want {
  Mat m, v, norms;
};
Want reference(const LambMoments& op) {
  Want want{read(op.m), read(op.v), read(op.norms)};
  const double beta1 = double{op.beta1}, beta2 = double{op.beta2};
  for (std::int64_t i = 0; i < op.w.cols; ++i) {
    const double g = get(op.factor, 0, 0) * get(op.grad, 0, i), w = get(op.w, 0, i);
    want.m(0, i) = beta1 * want.m(0, i) + (1 - beta1) * g;
    want.v(0, i) = beta2 * want.v(0, i) + (1 - beta2) * g * g;
    want.norms(0, 0) += w * w;
    want.norms(0, 1) += std::pow(step_of(op, want.m(0, i), want.v(0, i), w), 2);
  }
  return want;
}

TEST(Lamb, MomentsAndNorms) {
  for (const std::int64_t n : {0, 1, 19, 1025, 5000, 70000}) {
    for (const auto& [counted, gradients] :
         {std::pair{true, DType::f32}, {false, DType::f32}, {true, DType::bf16}, {false, DType::bf16}}) {
      SCOPED_TRACE(testing::Message() << n << (counted ? "" : " not counted") << " " << to_string(gradients));
      Memory m;
      LambMoments op = moments_of(m, n, gradients);
      const Want want = reference(op);
      const Mat before = read(op.norms);
      const Tensor norms = op.norms;
      if (!counted) op.norms = {};
      everywhere(m, op, [&] {
        EXPECT_TRUE(close(op.m, want.m, kLambF32));
        EXPECT_TRUE(close(op.v, want.v, kLambF32));
        EXPECT_NEAR(get(norms, 0, 0), (counted ? want.norms : before)(0, 0), 1e-12 * std::abs(want.norms(0, 0)));
        EXPECT_NEAR(get(norms, 0, 1), (counted ? want.norms : before)(0, 1), kLambF32 * std::abs(want.norms(0, 1)));
      });
      put(op.factor, 0, 0, 0.0);
      if (n > 0) put(op.grad, 0, 0, NAN);
      const Memory::Image image = m.save();
      everywhere(m, op, [&] { EXPECT_TRUE(m.save() == image) << "factor 0 must leave everything as it is"; });
    }
  }
}

TEST(Lamb, NormsOfSlicesAddUp) {
  Memory m;
  const std::int64_t n = 40000;
  LambMoments op = moments_of(m, n);
  const Want want = reference(op);
  const Tensor all_m = op.m, all_v = op.v, all_w = op.w, all_grad = op.grad;
  for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, 7}, {7, 16391}, {16391, n}}) {
    op.m = all_m.slice_cols(begin, end - begin);
    op.v = all_v.slice_cols(begin, end - begin);
    op.w = all_w.slice_cols(begin, end - begin);
    op.grad = all_grad.slice_cols(begin, end - begin);
    variants().back()->run(op);
  }
  EXPECT_NEAR(get(op.norms, 0, 0), want.norms(0, 0), 1e-12 * want.norms(0, 0));
  EXPECT_NEAR(get(op.norms, 0, 1), want.norms(0, 1), kLambF32 * want.norms(0, 1));
}

TEST(Lamb, NormsBeyondTheRangeOfF32) {
  Memory m;
  LambMoments op = moments_of(m, 100);
  write(op.norms, Mat(1, 2));
  for (std::int64_t i = 0; i < 100; ++i) put(op.w, 0, i, 1e30);
  everywhere(m, op, [&] {
    EXPECT_NEAR(get(op.norms, 0, 0) / 1e62, 1.0, 1e-6);
    EXPECT_NEAR(get(op.norms, 0, 1) / 9e60, 1.0, 1e-6);  // decay 0.3
  });
}

TEST(Lamb, Apply) {
  struct Row {
    double w_squares, u_squares, ratio;
  };
  for (const Row& c : {Row{4, 16, 0.5}, Row{36, 4, 3}, Row{0, 4, 1}, Row{4, 0, 1}, Row{0, 0, 1}, Row{1e62, 1e60, 10}}) {
    for (const bool has_master : {false, true}) {
      for (const std::int64_t n : {0, 1, 19, 5000, 70000}) {
        SCOPED_TRACE(testing::Message() << n << (has_master ? " bf16" : " f32") << " ratio " << c.ratio);
        Memory m;
        const LambApply op{.param = m.tensor(has_master ? DType::bf16 : DType::f32, 1, n),
                           .master = has_master ? m.tensor(DType::f32, 1, n) : Tensor{},
                           .m = m.tensor(DType::f32, 1, n, 0, 0.1),
                           .v = m.tensor(DType::f32, 1, n),
                           .norms = m.tensor(DType::f64, 1, 2),
                           .factor = m.tensor(DType::f32, 1, 1),
                           .lr = 0.01F,
                           .eps = 1e-6F,
                           .weight_decay = 0.3F,
                           .correction1 = 0.271F,
                           .correction2 = 0.142625F};
        for (std::int64_t i = 0; i < n; ++i) put(op.v, 0, i, std::abs(get(op.v, 0, i)));
        put(op.norms, 0, 0, c.w_squares);
        put(op.norms, 0, 1, c.u_squares);
        put(op.factor, 0, 0, 0.25);
        const Tensor w = has_master ? op.master : op.param;
        Mat want = read(w);
        for (std::int64_t i = 0; i < n; ++i) {
          want(0, i) -= double{op.lr} * c.ratio * step_of(op, get(op.m, 0, i), get(op.v, 0, i), want(0, i));
        }
        everywhere(m, op, [&] {
          EXPECT_TRUE(close(w, want, kLambF32));
          if (!has_master) return;
          for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(get(op.param, 0, i), round_to_bf16(get(op.master, 0, i)));
        });
        put(op.factor, 0, 0, 0.0);
        put(op.norms, 0, 1, NAN);
        const Memory::Image image = m.save();
        everywhere(m, op, [&] { EXPECT_TRUE(m.save() == image) << "factor 0 must leave everything as it is"; });
      }
    }
  }
}

TEST(Lamb, RefusesWrongShapes) {
  Memory m;
  LambMoments moments = moments_of(m, 8);
  moments.norms = m.tensor(DType::f64, 1, 1);
  EXPECT_DEATH(cpu_kernels().run(moments), "lamb_moments: norms is 1x1");
  LambApply apply;
  apply.param = m.tensor(DType::bf16, 1, 8);
  EXPECT_DEATH(cpu_kernels().run(apply), "lamb_apply: param is bf16");
}

}  // namespace
}  // namespace ms::tensor::test
