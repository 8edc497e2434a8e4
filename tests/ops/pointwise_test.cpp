// Activations, rotary, sums of tensors, copies and the embedding's rows.
#include <cmath>
#include <limits>
#include <numbers>

#include "base/rng.h"
#include "support.h"

namespace ms::tensor::test {
namespace {

// An exponential exact to about 1e-7, whose argument of up to some tens was itself rounded, and a handful of roundings.
constexpr double kPointwiseF32 = 2e-6;

struct Case {
  std::int64_t rows, cols, gap;
};
constexpr Case kCases[] = {{1, 1, 0}, {5, 7, 0}, {3, 16, 5}, {9, 33, 1}, {4, 96, 0}, {70, 515, 0}, {41, 1030, 2}};

template <class Body>
void for_each_case(Body&& body) {
  for (const DType dtype : activation_types()) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(label(dtype, c.rows, c.cols));
      body(dtype, c);
    }
  }
}

Mat map(Mat x, const std::function<double(double)>& f) {
  for (double& value : x.values) value = f(value);
  return x;
}
Mat zip(Mat a, const Mat& b, const std::function<double(double, double)>& f) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] = f(a.values[i], b.values[i]);
  return a;
}

double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}

double exact_gelu(double x) { return x * 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double exact_gelu_slope(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
}

void expect_gelu(bool exact, double (*value)(double), double (*slope)(double)) {
  for_each_case([&](DType dtype, const Case& c) {
    Memory m;
    const Tensor x = m.tensor(dtype, c.rows, c.cols, c.gap, 3.0), dy = m.tensor(dtype, c.rows, c.cols, c.gap);
    const GeluFwd forward{
        .y = m.tensor(dtype, c.rows, c.cols, c.gap), .x = x, .amax = amax_place(m, dtype), .exact = exact};
    const Mat y = map(read(x), value), dx = zip(read(dy), map(read(x), slope), std::multiplies<>());
    everywhere(m, forward, [&] {
      EXPECT_TRUE(close(forward.y, y, tolerance_of(dtype, kPointwiseF32)));
      EXPECT_TRUE(is_amax(forward.amax, forward.y));
    });
    const GeluBwd backward{.dx = forward.y, .dy = dy, .x = x, .amax = forward.amax, .exact = exact};
    everywhere(m, backward, [&] {
      EXPECT_TRUE(close(backward.dx, dx, tolerance_of(dtype, kPointwiseF32)));
      EXPECT_TRUE(is_amax(backward.amax, backward.dx));
    });
    const GeluBwd in_place{.dx = dy, .dy = dy, .x = x, .exact = exact};
    everywhere(m, in_place, [&] { EXPECT_TRUE(close(dy, dx, tolerance_of(dtype, kPointwiseF32))); });
  });
}

TEST(Pointwise, Gelu) { expect_gelu(false, gelu, gelu_slope); }
TEST(Pointwise, ExactGelu) { expect_gelu(true, exact_gelu, exact_gelu_slope); }

TEST(Pointwise, GeluOfLargeInputsIsIdentityOrZero) {
  Memory m;
  const Mat far = [] {
    Mat x(1, 6);
    x.values = {-1e30, -50, -10, 10, 50, 1e30};
    return x;
  }();
  for (const bool exact : {false, true}) {
    const GeluFwd forward{.y = m.tensor(DType::f32, 1, 6), .x = m.of(DType::f32, far), .exact = exact};
    const GeluBwd backward{
        .dx = m.tensor(DType::f32, 1, 6), .dy = m.tensor(DType::f32, 1, 6), .x = forward.x, .exact = exact};
    for (std::int64_t j = 0; j < 6; ++j) put(backward.dy, 0, j, 1);
    everywhere(m, forward, [&] {
      for (std::int64_t j = 0; j < 6; ++j)
        EXPECT_NEAR(get(forward.y, 0, j), far(0, j) < 0 ? 0.0 : get(forward.x, 0, j), exact ? 1e-21 : 1e-30);
    });
    everywhere(m, backward, [&] {
      for (std::int64_t j = 0; j < 6; ++j)
        EXPECT_NEAR(get(backward.dx, 0, j), far(0, j) < 0 ? 0.0 : 1.0, exact ? 1e-20 : 1e-12);
    });
  }
}

TEST(Pointwise, Swiglu) {
  for_each_case([](DType dtype, const Case& c) {
    Memory m;
    const SwigluFwd forward{.y = m.tensor(dtype, c.rows, c.cols, c.gap),
                            .x = m.tensor(dtype, c.rows, 2 * c.cols, c.gap, 2.0),
                            .amax = amax_place(m, dtype)};
    const SwigluBwd backward{.dx = m.tensor(dtype, c.rows, 2 * c.cols, c.gap),
                             .dy = m.tensor(dtype, c.rows, c.cols),
                             .x = forward.x,
                             .amax = forward.amax};
    const Mat gate = read(forward.x.slice_cols(0, c.cols)), up = read(forward.x.slice_cols(c.cols, c.cols)),
              dy = read(backward.dy);
    const Mat y = zip(map(gate, silu), up, std::multiplies<>());
    const Mat dgate = zip(zip(map(gate, silu_slope), up, std::multiplies<>()), dy, std::multiplies<>());
    const Mat dup = zip(map(gate, silu), dy, std::multiplies<>());
    everywhere(m, forward, [&] {
      EXPECT_TRUE(close(forward.y, y, tolerance_of(dtype, kPointwiseF32)));
      EXPECT_TRUE(is_amax(forward.amax, forward.y));
    });
    everywhere(m, backward, [&] {
      EXPECT_TRUE(is_amax(backward.amax, backward.dx));
      EXPECT_TRUE(close(backward.dx.slice_cols(0, c.cols), dgate, tolerance_of(dtype, kPointwiseF32)));
      EXPECT_TRUE(close(backward.dx.slice_cols(c.cols, c.cols), dup, tolerance_of(dtype, kPointwiseF32)));
    });
  });
}

TEST(Pointwise, ActivationGradientsAgreeWithFiniteDifferences) {
  Memory m;
  const Tensor x = m.tensor(DType::f32, 3, 10), dy = m.tensor(DType::f32, 3, 10), half = m.tensor(DType::f32, 3, 5);
  const GeluBwd g{.dx = m.tensor(DType::f32, 3, 10), .dy = dy, .x = x};
  const SwigluBwd s{.dx = m.tensor(DType::f32, 3, 10), .dy = half, .x = x};
  const Mat gelu_want = numeric_gradient([&](const Mat& at) { return weighted_sum(map(at, gelu), read(dy)); }, read(x));
  const Mat swiglu_want = numeric_gradient(
      [&](const Mat& at) {
        double total = 0;
        for (std::int64_t i = 0; i < 3; ++i) {
          for (std::int64_t j = 0; j < 5; ++j) total += get(half, i, j) * silu(at(i, j)) * at(i, 5 + j);
        }
        return total;
      },
      read(x));
  everywhere(m, g, [&] { EXPECT_TRUE(close(g.dx, gelu_want, kPointwiseF32)); });
  everywhere(m, s, [&] { EXPECT_TRUE(close(s.dx, swiglu_want, kPointwiseF32)); });
}

TEST(Pointwise, RotaryRotatesPairsAndBack) {
  struct Row {
    std::int64_t batch, seq, heads, head_dim, rotated;
  };
  for (const DType dtype : activation_types()) {
    for (const Row& c : {Row{1, 3, 1, 2, 2}, Row{2, 17, 3, 12, 12}, Row{1, 40, 2, 64, 64}, Row{3, 50, 4, 66, 66},
                         Row{2, 9, 3, 64, 16}, Row{1, 9, 2, 7, 4}, Row{1, 20, 3, 20, 16}}) {
      SCOPED_TRACE(label(dtype, c.batch * c.seq, c.heads * c.head_dim));
      Memory m;
      const RotaryTable table{.table = m.tensor(DType::f32, c.seq, c.rotated, 1), .base = 10000.0F};
      Rotary op{.x = m.tensor(dtype, c.batch * c.seq, c.heads * c.head_dim, 3),
                .table = table.table,
                .seq = c.seq,
                .head_dim = c.head_dim,
                .inverse = false};
      const Mat x = read(op.x);
      Mat want = x, angles(c.seq, c.rotated);
      const std::int64_t half = c.rotated / 2;
      for (std::int64_t t = 0; t < x.rows; ++t) {
        for (std::int64_t i = 0; i < half; ++i) {
          const double angle = static_cast<double>(t % c.seq) *
                               std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(c.rotated));
          angles(t % c.seq, i) = std::cos(angle), angles(t % c.seq, half + i) = std::sin(angle);
          for (std::int64_t h = 0; h < c.heads; ++h) {
            const double a = x(t, h * c.head_dim + i), b = x(t, h * c.head_dim + half + i);
            want(t, h * c.head_dim + i) = a * std::cos(angle) - b * std::sin(angle);
            want(t, h * c.head_dim + half + i) = b * std::cos(angle) + a * std::sin(angle);
          }
        }
      }
      everywhere(m, table, [&] { EXPECT_TRUE(close(table.table, angles, kPointwiseF32)); });
      variants().back()->run(table);
      everywhere(m, op, [&] { EXPECT_TRUE(close(op.x, want, tolerance_of(dtype, kPointwiseF32))); });
      op.inverse = true;  // memory now holds the rotated x
      everywhere(m, op, [&] { EXPECT_TRUE(close(op.x, x, 2 * tolerance_of(dtype, kPointwiseF32))); });
    }
  }
}

TEST(Pointwise, Add) {
  for_each_case([](DType dtype, const Case& c) {
    Memory m;
    const Tensor a = m.tensor(dtype, c.rows, c.cols, c.gap), b = m.tensor(dtype, c.rows, c.cols, 1);
    const Tensor bias = m.tensor(dtype, 1, c.cols);
    const Mat sum = zip(read(a), read(b), std::plus<>());
    Mat biased = sum;
    for (std::int64_t i = 0; i < c.rows; ++i) {
      for (std::int64_t j = 0; j < c.cols; ++j) biased(i, j) += get(bias, 0, j);
    }
    const Tensor y = m.tensor(dtype, c.rows, c.cols, c.gap);
    everywhere(m, Add{.y = y, .a = a, .b = b, .bias = {}},
               [&] { EXPECT_TRUE(close(y, sum, tolerance_of(dtype, kPointwiseF32))); });
    everywhere(m, Add{.y = y, .a = a, .b = b, .bias = bias},
               [&] { EXPECT_TRUE(close(y, biased, tolerance_of(dtype, kPointwiseF32))); });
    const Mat twice = zip(read(a), read(a), std::plus<>());
    everywhere(m, Add{.y = a, .a = a, .b = a, .bias = {}},
               [&] { EXPECT_TRUE(close(a, twice, tolerance_of(dtype, kPointwiseF32))); });
  });
}

TEST(Pointwise, CopyConvertsAndKeepsGaps) {
  using enum DType;
  struct Pair {
    DType to, from;
  };
  for (const Pair& p : {Pair{f32, f32}, Pair{bf16, bf16}, Pair{f64, f64}, Pair{i32, i32}, Pair{bf16, f32},
                        Pair{f32, bf16}, Pair{f64, f32}, Pair{f32, f64}}) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(label(p.from, c.rows, c.cols));
      Memory m;
      const Copy op{.dst = m.tensor(p.to, c.rows, c.cols, c.gap), .src = m.tensor(p.from, c.rows, c.cols, 1)};
      if (p.from == i32) put(op.src, 0, 0, -2147483647.0);
      Mat want = read(op.src);
      if (p.to == bf16) want = map(want, round_to_bf16);
      if (p.to == f32) want = map(want, [](double x) { return static_cast<double>(static_cast<float>(x)); });
      everywhere(m, op, [&] { EXPECT_TRUE(close(op.dst, want, 0)); });
    }
  }
}

// Large enough for streaming stores, with ends that are not aligned to cache lines.
TEST(Pointwise, CopiesManyBytes) {
  using enum DType;
  for (const DType dtype : {f32, bf16}) {
    for (const bool rows : {false, true}) {
      SCOPED_TRACE(label(dtype, rows, 0));
      const std::int64_t n = (std::int64_t{4} << 20) / size_of(dtype) + 7001;
      Memory m;
      const Copy op = rows ? Copy{.dst = m.tensor(dtype, n / 333, 333, 5), .src = m.tensor(dtype, n / 333, 333)}
                           : Copy{.dst = m.tensor(dtype, 1, n), .src = m.tensor(dtype, 1, n)};
      const Mat want = read(op.src);
      everywhere(m, op, [&] { EXPECT_TRUE(close(op.dst, want, 0)); });
    }
  }
}

TEST(Pointwise, RoundsToBf16ToNearestEven) {
  // 1 + 2^-8 lies between 1 and 1 + 2^-7: to even, down; 1 + 3 * 2^-8: to even, up.
  constexpr double kMax = std::numeric_limits<float>::max(), kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<double, double>> rows{
      {1.00390625, 1.0}, {1.01171875, 1.015625},       {1.003906369, 1.0078125}, {-1.00390625, -1.0},
      {kMax, kInfinity}, {-kMax, -kInfinity},          {kInfinity, kInfinity},   {0.0, 0.0},
      {1e-45, 0.0},      {1e-40, round_to_bf16(1e-40)}};
  for (const std::int64_t copies : {1, 9}) {  // as part of a vector and as a whole one
    Memory m;
    const auto n = static_cast<std::int64_t>(rows.size());
    const Copy op{.dst = m.tensor(DType::bf16, 1, copies * n + 1), .src = m.tensor(DType::f32, 1, copies * n + 1)};
    for (std::int64_t j = 0; j < copies * n; ++j) put(op.src, 0, j, rows[static_cast<std::size_t>(j % n)].first);
    put(op.src, 0, copies * n, NAN);
    everywhere(m, op, [&] {
      for (std::int64_t j = 0; j < copies * n; ++j)
        EXPECT_EQ(get(op.dst, 0, j), rows[static_cast<std::size_t>(j % n)].second);
      EXPECT_TRUE(std::isnan(get(op.dst, 0, copies * n)));
    });
  }
}

TEST(Pointwise, Fill) {
  using enum DType;
  for (const DType dtype : {f32, bf16, f64, i32}) {
    for (const Case& c : kCases) {
      Memory m;
      const Fill op{.x = m.tensor(dtype, c.rows, c.cols, c.gap), .value = -3.0F};
      const Mat want = map(read(op.x), [](double) { return -3.0; });
      everywhere(m, op, [&] { EXPECT_TRUE(close(op.x, want, 0)); });
    }
  }
}

// Types of an activation and of the gradient that adds it up. In bf16 a row of it is rounded once, however many tokens
// it sums: twice the ulp that a single rounding may be off.
constexpr std::pair<DType, DType> kSummed[] = {
    {DType::f32, DType::f32}, {DType::bf16, DType::f32}, {DType::f32, DType::bf16}, {DType::bf16, DType::bf16}};

TEST(Pointwise, EmbeddingShard) {
  for (const auto& [dtype, sums] : kSummed) {
    for (const std::int64_t tokens : {1, 37, 400}) {
      const std::int64_t vocabulary = 11, hidden = 131, first = 20;
      SCOPED_TRACE(label(dtype, tokens, hidden));
      Memory m;
      const EmbeddingFwd forward{.y = m.tensor(dtype, tokens, hidden, 3),
                                 .table = m.tensor(dtype, vocabulary, hidden, 1),
                                 .tokens = m.tensor(DType::i32, 1, tokens),
                                 .first = first};
      const EmbeddingBwd backward{.dtable = m.tensor(sums, vocabulary, hidden, 1),
                                  .dy = m.tensor(dtype, tokens, hidden),
                                  .tokens = forward.tokens,
                                  .first = first};
      Mat y(tokens, hidden), dtable = read(backward.dtable);
      for (std::int64_t t = 0; t < tokens; ++t) {  // some below the shard, some above, many repeated
        const auto token = static_cast<std::int64_t>(uniform_below(3, 3, static_cast<std::uint64_t>(t), 20)) + 15;
        put(forward.tokens, 0, t, static_cast<double>(token));
        if (token < first || token >= first + vocabulary) continue;
        for (std::int64_t j = 0; j < hidden; ++j) {
          y(t, j) = get(forward.table, token - first, j);
          dtable(token - first, j) += get(backward.dy, t, j);
        }
      }
      everywhere(m, forward, [&] { EXPECT_TRUE(close(forward.y, y, 0)); });
      everywhere(m, backward, [&] { EXPECT_TRUE(close(backward.dtable, dtable, tolerance_of(sums, kPointwiseF32))); });
    }
  }
}

TEST(Pointwise, Positions) {
  for (const auto& [dtype, sums] : kSummed) {
    for (const std::int64_t offset : {0, 4, 9, 25}) {
      const std::int64_t rows = 300, seq = 9, hidden = 130;
      Memory m;
      const PositionFwd forward{
          .y = m.tensor(dtype, rows, hidden, 3), .table = m.tensor(dtype, seq, hidden, 1), .offset = offset};
      const PositionBwd backward{
          .dtable = m.tensor(sums, seq, hidden, 1), .dy = m.tensor(dtype, rows, hidden), .offset = offset};
      Mat y = read(forward.y), dtable = read(backward.dtable);
      for (std::int64_t t = 0; t < rows; ++t) {
        for (std::int64_t j = 0; j < hidden; ++j) {
          y(t, j) += get(forward.table, (offset + t) % seq, j);
          dtable((offset + t) % seq, j) += get(backward.dy, t, j);
        }
      }
      everywhere(m, forward, [&] { EXPECT_TRUE(close(forward.y, y, tolerance_of(dtype, kPointwiseF32))); });
      everywhere(m, backward, [&] { EXPECT_TRUE(close(backward.dtable, dtable, tolerance_of(sums, kPointwiseF32))); });
    }
  }
}

}  // namespace
}  // namespace ms::tensor::test
