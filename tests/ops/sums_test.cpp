// Sums in f64, clipping, AdamW, initial values, reductions of several buffers.
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "support.h"
#include "tensor/team.h"

namespace ms::tensor::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Sums, IntoF64) {
  struct Row {
    std::int64_t rows, cols, gap;
  };
  for (const Row& c :
       {Row{1, 1, 0}, Row{1, 1000, 0}, Row{7, 33, 2}, Row{1, 100001, 0}, Row{3, 50000, 0}, Row{0, 4, 0}}) {
    SCOPED_TRACE(label(DType::f32, c.rows, c.cols));
    Memory m;
    const Tensor x = m.tensor(DType::f32, c.rows, c.cols, c.gap), wide = m.tensor(DType::f64, c.rows, c.cols, c.gap);
    const Tensor out = m.tensor(DType::f64, 1, 1);
    double sum = 0, squares = 0, wide_sum = 0;
    for (std::int64_t i = 0; i < c.rows; ++i) {
      for (std::int64_t j = 0; j < c.cols; ++j) {
        sum += get(x, i, j), squares += get(x, i, j) * get(x, i, j), wide_sum += get(wide, i, j);
      }
    }
    // f64: only the order of the sums differs.
    const double before = get(out, 0, 0), slack = 1e-9;
    everywhere(m, SumInto{.out = out, .x = x, .scale = 0.5},
               [&] { EXPECT_NEAR(get(out, 0, 0), before + 0.5 * sum, slack); });
    put(out, 0, 0, before);
    everywhere(m, SumInto{.out = out, .x = wide, .scale = 2},
               [&] { EXPECT_NEAR(get(out, 0, 0), before + 2 * wide_sum, slack); });
    put(out, 0, 0, before);
    everywhere(m, SumSquares{.out = out, .x = x},
               [&] { EXPECT_NEAR(get(out, 0, 0), before + squares, 1e-12 * squares); });
    put(out, 0, 0, before);
    const Tensor half = m.tensor(DType::bf16, c.rows, c.cols, c.gap);
    squares = 0;
    for (const double value : read(half).values) squares += value * value;
    everywhere(m, SumSquares{.out = out, .x = half},
               [&] { EXPECT_NEAR(get(out, 0, 0), before + squares, 1e-12 * squares); });
  }
}

TEST(Sums, SquaresBeyondTheRangeOfF32) {
  Memory m;
  const SumSquares op{.out = m.tensor(DType::f64, 1, 1, 0, 0.0), .x = m.tensor(DType::f32, 1, 100)};
  for (std::int64_t j = 0; j < 100; ++j) put(op.x, 0, j, 1e30);
  everywhere(m, op, [&] { EXPECT_NEAR(get(op.out, 0, 0) / 1e62, 1.0, 1e-6); });
}

TEST(Sums, Amax) {
  struct Row {
    std::int64_t rows, cols, gap;
    double size;
  };
  for (const Row& c : {Row{1, 1, 0, 1}, Row{1, 1000, 0, 1e30}, Row{7, 33, 2, 1e-40}, Row{300, 800, 8, 1},
                       Row{3, 50001, 0, 1}, Row{5, 8, 0, 0}, Row{0, 8, 0, 1}}) {
    SCOPED_TRACE(label(DType::bf16, c.rows, c.cols));
    Memory m;
    const Amax op{.out = m.tensor(DType::f32, 1, 1), .x = m.tensor(DType::bf16, c.rows, c.cols, c.gap, c.size)};
    double want = 0;
    for (const double value : read(op.x).values) want = std::max(want, std::abs(value));
    everywhere(m, op, [&] { EXPECT_EQ(get(op.out, 0, 0), want); });
    if (c.rows == 0) continue;
    put(op.x, c.rows - 1, c.cols - 1, -3e38);  // anywhere, and negative
    everywhere(m, op, [&] { EXPECT_EQ(get(op.out, 0, 0), -get(op.x, c.rows - 1, c.cols - 1)); });
    for (const double bad : {static_cast<double>(NAN), -kInfinity}) {
      put(op.x, c.rows / 2, 0, bad);
      everywhere(m, op, [&] { EXPECT_FALSE(std::isfinite(get(op.out, 0, 0))); });
    }
  }
}

TEST(Optimizer, ClipFactor) {
  struct Row {
    double sum_squares;
    float max_norm;
    double factor;
    float skip_above = static_cast<float>(kInfinity);
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Row& c :
       {Row{0, 1, 1}, Row{0.25, 1, 1}, Row{1, 1, 1}, Row{16, 1, 0.25}, Row{16, 0, 1}, Row{16, -1, 1},
        Row{kInfinity, 1, 0}, Row{kInfinity, 0, 0}, Row{nan, 1, 0}, Row{nan, 0, 0}, Row{1e60, 1, 1e-30},
        Row{1e80, 0, 0}, Row{16, 1, 0.25, 4}, Row{16, 1, 0, 3.999F}, Row{16, 0, 0, 0}, Row{nan, 1, 0, 4}}) {
    SCOPED_TRACE(testing::Message() << "sum of squares " << c.sum_squares << " limit " << c.max_norm);
    Memory m;
    const ClipFactor op{.factor = m.tensor(DType::f32, 1, 1),
                        .norm = m.tensor(DType::f32, 1, 1),
                        .sum_squares = m.tensor(DType::f64, 1, 1),
                        .max_norm = c.max_norm,
                        .skip_above = c.skip_above};
    put(op.sum_squares, 0, 0, c.sum_squares);
    everywhere(m, op, [&] {
      EXPECT_EQ(get(op.factor, 0, 0), static_cast<double>(static_cast<float>(c.factor)));
      const auto norm = static_cast<float>(std::sqrt(c.sum_squares));
      const double got = get(op.norm, 0, 0);
      EXPECT_EQ(std::isfinite(got), std::isfinite(norm));
      EXPECT_TRUE(got == static_cast<double>(norm) || !std::isfinite(norm)) << got;
    });
  }
}

TEST(Optimizer, AdamW) {
  for (const auto& [has_master, gradients] : {std::pair{false, DType::f32}, {true, DType::f32}, {true, DType::bf16}}) {
    for (const std::int64_t n : {0, 1, 19, 5000, 70000}) {
      SCOPED_TRACE(testing::Message() << n << (has_master ? " bf16" : " f32") << ", gradients "
                                      << to_string(gradients));
      Memory m;
      const AdamW op{.param = m.tensor(has_master ? DType::bf16 : DType::f32, 1, n),
                     .master = has_master ? m.tensor(DType::f32, 1, n) : Tensor{},
                     .m = m.tensor(DType::f32, 1, n, 0, 0.1),
                     .v = m.tensor(DType::f32, 1, n),
                     .grad = m.tensor(gradients, 1, n),
                     .factor = m.tensor(DType::f32, 1, 1),
                     .lr = 0.01F,
                     .beta1 = 0.9F,
                     .beta2 = 0.95F,
                     .eps = 1e-8F,
                     .weight_decay = 0.1F,
                     .correction1 = 0.271F,
                     .correction2 = 0.142625F};
      for (std::int64_t i = 0; i < n; ++i) put(op.v, 0, i, std::abs(get(op.v, 0, i)));
      put(op.factor, 0, 0, 0.25);
      const Tensor w = has_master ? op.master : op.param;
      Mat want_w = read(w), want_m = read(op.m), want_v = read(op.v);
      for (std::int64_t i = 0; i < n; ++i) {
        const double g = 0.25 * get(op.grad, 0, i), beta1 = static_cast<double>(op.beta1),
                     beta2 = static_cast<double>(op.beta2);
        want_m(0, i) = beta1 * want_m(0, i) + (1 - beta1) * g;
        want_v(0, i) = beta2 * want_v(0, i) + (1 - beta2) * g * g;
        want_w(0, i) -=
            static_cast<double>(op.lr) *
            (static_cast<double>(op.weight_decay) * want_w(0, i) +
             want_m(0, i) / static_cast<double>(op.correction1) /
                 (std::sqrt(want_v(0, i) / static_cast<double>(op.correction2)) + static_cast<double>(op.eps)));
      }
      everywhere(m, op, [&] {
        EXPECT_TRUE(close(w, want_w, 1e-6));
        EXPECT_TRUE(close(op.m, want_m, 1e-6));
        EXPECT_TRUE(close(op.v, want_v, 1e-6));
        if (!has_master) return;
        for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(get(op.param, 0, i), round_to_bf16(get(op.master, 0, i)));
      });
      put(op.factor, 0, 0, 0.0);
      if (n > 0) put(op.grad, 0, 0, NAN);
      const Memory::Image before = m.save();
      everywhere(m, op, [&] { EXPECT_TRUE(m.save() == before) << "factor 0 must leave everything as it is"; });
    }
  }
}

// Moments in bf16: w follows from what they are before they are rounded to one of their two neighbors, without bias.
// An element is rounded in the same way wherever it lies.
TEST(Optimizer, AdamWWithMomentsInBf16) {
  constexpr std::int64_t kN = 70001, kFirst = 37;
  for (const DType type : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(to_string(type));
    Memory m;
    AdamW op{.param = m.tensor(type, 1, kN),
             .master = type == DType::bf16 ? m.tensor(DType::f32, 1, kN) : Tensor{},
             .m = m.tensor(DType::bf16, 1, kN, 0, 0.1),
             .v = m.tensor(DType::bf16, 1, kN),
             .grad = m.tensor(DType::f32, 1, kN),
             .factor = m.tensor(DType::f32, 1, 1),
             .lr = 0.01F,
             .beta1 = 0.9F,
             .beta2 = 0.999F,
             .eps = 1e-8F,
             .weight_decay = 0.1F,
             .correction1 = 0.271F,
             .correction2 = 0.142625F,
             .seed = 7};
    for (std::int64_t i = 0; i < kN; ++i) put(op.v, 0, i, std::abs(get(op.v, 0, i)));
    put(op.factor, 0, 0, 0.25);
    const Tensor w = op.master ? op.master : op.param;
    AdamW exact = op;  // the same numbers, with moments in f32
    exact.param = m.tensor(DType::f32, 1, kN), exact.master = {};
    exact.m = m.tensor(DType::f32, 1, kN), exact.v = m.tensor(DType::f32, 1, kN);
    for (const auto& [to, from] : {std::pair{exact.param, w}, {exact.m, op.m}, {exact.v, op.v}})
      for (std::int64_t i = 0; i < kN; ++i) put(to, 0, i, get(from, 0, i));
    cpu_kernels().run(exact);
    const Mat want_w = read(exact.param), want_m = read(exact.m), want_v = read(exact.v);
    const Memory::Image before = m.save();
    std::vector<Mat> all;  // of all variants, m and v
    everywhere(m, op, [&] {
      EXPECT_TRUE(close(w, want_w, 1e-6));
      for (const auto& [got, want] : {std::pair{op.m, &want_m}, {op.v, &want_v}}) {
        double bias = 0;
        for (std::int64_t i = 0; i < kN; ++i) {
          const double exactly = (*want)(0, i), unit = std::ldexp(1.0, std::ilogb(exactly) - 7);
          const double error = (get(got, 0, i) - exactly) / unit;
          ASSERT_LT(std::abs(error), 1.01) << i;  // a GPU's f32 may be one bit off
          bias += error / kN;
        }
        EXPECT_NEAR(bias, 0, 0.01);  // 5 standard deviations
        all.push_back(read(got));
      }
    });
    AdamW tail = op;
    for (Tensor AdamW::*field : {&AdamW::param, &AdamW::master, &AdamW::m, &AdamW::v, &AdamW::grad})
      if (tail.*field) tail.*field = (tail.*field).slice_cols(kFirst, kN - kFirst);
    std::size_t variant = 0;
    m.restore(before);
    everywhere(m, tail, [&] {
      for (const Tensor& got : {op.m, op.v}) {
        const Mat& want = all[variant++];
        for (std::int64_t i = kFirst; i < kN; ++i) ASSERT_EQ(get(got, 0, i), want(0, i)) << i;
      }
    });
    op.seed = 8;
    variant = 0;
    m.restore(before);
    everywhere(m, op, [&] {
      for (const Tensor& got : {op.m, op.v}) {
        const Mat& of_other = all[variant++];
        std::int64_t differ = 0;
        for (std::int64_t i = 0; i < kN; ++i) differ += get(got, 0, i) != of_other(0, i) ? 1 : 0;
        EXPECT_GT(differ, kN / 8) << "another step rounds in the same way";
      }
    });
  }
}

TEST(Init, NormalDoesNotDependOnTheSharding) {
  const std::int64_t rows = 70, cols = 90;
  for (const DType dtype : activation_types()) {
    Memory m;
    const Tensor whole = m.tensor(dtype, rows, cols, 3);
    const InitNormal all{.x = whole,
                         .seed = 5,
                         .key = rng_key("w"),
                         .row0 = 0,
                         .col0 = 0,
                         .global_cols = cols,
                         .valid_rows = 64,
                         .std = 0.02F};
    Mat drawn(rows, cols), made(rows, cols);
    for (std::int64_t i = 0; i < 64; ++i) {
      for (std::int64_t j = 0; j < cols; ++j)
        drawn(i, j) = double{0.02F * normal(5, rng_key("w"), static_cast<std::uint64_t>(i * cols + j))};
    }
    everywhere(m, all, [&] {
      EXPECT_TRUE(close(whole, drawn, tolerance_of(dtype, 1e-6)));
      EXPECT_EQ(get(whole, 64, 0), 0);
      made = read(whole);
    });
    const Tensor part = m.tensor(dtype, 20, 31, 1);
    const InitNormal cut{.x = part,
                         .seed = 5,
                         .key = rng_key("w"),
                         .row0 = 50,
                         .col0 = 47,
                         .global_cols = cols,
                         .valid_rows = 64,
                         .std = 0.02F};
    everywhere(m, cut, [&] {
      for (std::int64_t i = 0; i < 20; ++i) {
        for (std::int64_t j = 0; j < 31; ++j) ASSERT_EQ(get(part, i, j), made(50 + i, 47 + j));
      }
    });
  }
}

TEST(Reduce, SumsInOrderIntoAnyOfItsInputs) {
  using enum DType;
  for (const CpuKernels* kernels : variants()) {
    for (const DType dtype : {f32, bf16, f64, i32}) {
      for (const std::int64_t n : {1, 33, 70001}) {
        for (const int count : {1, 2, 5}) {
          for (const ReduceKind kind : {ReduceKind::sum, ReduceKind::max}) {
            SCOPED_TRACE(testing::Message() << to_string(kernels->isa) << " " << label(dtype, 1, n) << " of " << count);
            Memory m;
            std::vector<Tensor> inputs;
            std::vector<const void*> pointers;
            for (int k = 0; k < count; ++k) {
              inputs.push_back(m.tensor(dtype, 1, n));
              if (dtype == i32) {
                for (std::int64_t i = 0; i < n; ++i)
                  put(inputs.back(), 0, i, static_cast<double>((i * 7 + k * 13) % 101 - 50));
              }
              pointers.push_back(inputs.back().data);
            }
            Mat want = read(inputs[0]);
            for (int k = 1; k < count; ++k) {
              for (std::int64_t i = 0; i < n; ++i) {
                const double x = get(inputs[static_cast<std::size_t>(k)], 0, i), sum = want(0, i) + x;
                const bool single = dtype == f32 || dtype == bf16;
                want(0, i) = kind == ReduceKind::max ? std::max(want(0, i), x)
                                                     : (single ? static_cast<double>(static_cast<float>(sum)) : sum);
              }
            }
            if (dtype == bf16) {
              for (double& x : want.values) x = round_to_bf16(x);
            }
            const Tensor out = inputs.back();  // read last: the order must hold while it is overwritten
            set_team_threads(n > 1000 ? 2 : 1);
            kernels->reduce(kind, dtype, out.data, pointers.data(), count, n);
            EXPECT_TRUE(close(out, want, 0));  // the same bits: f32 is summed in the order given
            EXPECT_TRUE(m.guards_intact());
          }
        }
      }
    }
  }
}

TEST(Reduce, NanIsTheMaximum) {
  for (const CpuKernels* kernels : variants()) {
    for (const DType dtype : {DType::f32, DType::f64}) {
      Memory m;
      const Tensor a = m.tensor(dtype, 1, 40), b = m.tensor(dtype, 1, 40), out = m.tensor(dtype, 1, 40);
      put(a, 0, 3, NAN), put(b, 0, 39, NAN);
      const void* const in[] = {a.data, b.data};
      kernels->reduce(ReduceKind::max, dtype, out.data, in, 2, 40);
      EXPECT_TRUE(std::isnan(get(out, 0, 3)));
      EXPECT_TRUE(std::isnan(get(out, 0, 39)));
    }
  }
}

TEST(Kernels, RefusesWrongShapes) {
  Memory m;
  const Tensor x = m.tensor(DType::f32, 2, 8), y = m.tensor(DType::f32, 2, 7), half = m.tensor(DType::bf16, 2, 8);
  EXPECT_DEATH(cpu_kernels().run(GeluFwd{.y = y, .x = x}), "gelu_fwd: y is 2x7");
  EXPECT_DEATH(cpu_kernels().run(GeluFwd{.y = half, .x = x}), "gelu_fwd: y is bf16");
  AdamW adamw;
  adamw.param = half.slice_rows(0, 1);
  EXPECT_DEATH(cpu_kernels().run(adamw), "adamw: param is bf16");
  EXPECT_DEATH(cpu_kernels().run(Matmul{.c = x, .a = x, .b = x, .bias = {}}), "matmul: b is 2x8 .* not 8x8");
}

}  // namespace
}  // namespace ms::tensor::test
