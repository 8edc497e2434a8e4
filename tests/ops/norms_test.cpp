// LayerNorm, RMSNorm, column sums: against f64, gradients against finite differences.
#include <cmath>

#include "support.h"

namespace ms::tensor::test {
namespace {

// f32 arithmetic over rows of at most a thousand elements: a few units in the last place (6e-8) times the square root
// of that many roundings.
constexpr double kNormF32 = 4e-6;

struct NormCase {
  std::int64_t rows, cols, gap;
};
// One element, less than a vector, odd, whole vectors, more than one block of rows, large enough for a team; as wide as
// models are.
constexpr NormCase kNormCases[] = {{1, 1, 0},    {3, 5, 2},     {2, 16, 0},    {7, 64, 0},
                                   {33, 96, 32}, {100, 257, 1}, {131, 768, 0}, {7, 1600, 0},
                                   {3, 4096, 0}, {2, 12288, 0}, {1, 20000, 8}};

template <class Body>
void for_each_norm(Body&& body) {
  for (const DType dtype : activation_types()) {
    for (const NormCase& c : kNormCases) {
      SCOPED_TRACE(label(dtype, c.rows, c.cols));
      body(dtype, c);
    }
  }
}

struct Norm {
  Mat y, mean, rstd;
};
// LayerNorm if `centred`, else RMSNorm.
Norm norm(const Mat& x, const Mat& gain, const Mat* bias, double eps, bool centred) {
  Norm out{Mat(x.rows, x.cols), Mat(1, x.rows), Mat(1, x.rows)};
  for (std::int64_t i = 0; i < x.rows; ++i) {
    double mean = 0, square = 0;
    for (std::int64_t j = 0; j < x.cols; ++j) mean += centred ? x(i, j) / static_cast<double>(x.cols) : 0;
    for (std::int64_t j = 0; j < x.cols; ++j)
      square += (x(i, j) - mean) * (x(i, j) - mean) / static_cast<double>(x.cols);
    const double rstd = 1 / std::sqrt(square + eps);
    for (std::int64_t j = 0; j < x.cols; ++j) {
      out.y(i, j) = (x(i, j) - mean) * rstd * gain(0, j) + (bias != nullptr ? (*bias)(0, j) : 0);
    }
    out.mean(0, i) = mean, out.rstd(0, i) = rstd;
  }
  return out;
}

struct NormGradient {
  Mat dx, dgain, dbias;
};
NormGradient norm_gradient(const Mat& dy, const Mat& x, const Mat& mean, const Mat& rstd, const Mat& gain,
                           bool centred) {
  NormGradient out{Mat(x.rows, x.cols), Mat(1, x.cols), Mat(1, x.cols)};
  const auto n = static_cast<double>(x.cols);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    double plain = 0, along = 0;
    for (std::int64_t j = 0; j < x.cols; ++j) {
      const double xhat = (x(i, j) - mean(0, i)) * rstd(0, i), g = dy(i, j) * gain(0, j);
      plain += centred ? g / n : 0, along += g * xhat / n;
      out.dgain(0, j) += dy(i, j) * xhat, out.dbias(0, j) += dy(i, j);
    }
    for (std::int64_t j = 0; j < x.cols; ++j) {
      const double xhat = (x(i, j) - mean(0, i)) * rstd(0, i);
      out.dx(i, j) = rstd(0, i) * (dy(i, j) * gain(0, j) - plain - xhat * along);
    }
  }
  return out;
}

Mat plus(Mat a, const Mat& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

TEST(Norms, LayerNormForward) {
  for_each_norm([](DType dtype, const NormCase& c) {
    Memory m;
    const LayerNormFwd op{.y = m.tensor(dtype, c.rows, c.cols, c.gap),
                          .mean = m.tensor(DType::f32, 1, c.rows),
                          .rstd = m.tensor(DType::f32, 1, c.rows),
                          .x = m.tensor(dtype, c.rows, c.cols, c.gap, 3.0),
                          .gain = m.tensor(dtype, 1, c.cols),
                          .bias = m.tensor(dtype, 1, c.cols),
                          .eps = 1e-5F,
                          .amax = amax_place(m, dtype)};
    const Mat bias = read(op.bias);
    const Norm want = norm(read(op.x), read(op.gain), &bias, 1e-5, true);
    everywhere(m, op, [&] {
      EXPECT_TRUE(close(op.y, want.y, tolerance_of(dtype, kNormF32)));
      EXPECT_TRUE(is_amax(op.amax, op.y));
      EXPECT_TRUE(close(op.mean, want.mean, kNormF32));
      EXPECT_TRUE(close(op.rstd, want.rstd, kNormF32));
    });
  });
}

TEST(Norms, LayerNormKeepsDigitsUnderLargeOffsets) {  // E[x^2] - E[x]^2 would lose them
  struct Case {
    std::int64_t cols;
    double offset;
  };
  for (const auto& [cols, offset] : {Case{512, 4096}, Case{5120, 256}}) {
    Memory m;
    const LayerNormFwd op{.y = m.tensor(DType::f32, 1, cols),
                          .mean = m.tensor(DType::f32, 1, 1),
                          .rstd = m.tensor(DType::f32, 1, 1),
                          .x = m.tensor(DType::f32, 1, cols),
                          .gain = m.tensor(DType::f32, 1, cols),
                          .bias = m.tensor(DType::f32, 1, cols)};
    for (std::int64_t j = 0; j < cols; ++j) put(op.x, 0, j, offset + get(op.x, 0, j));
    const Mat bias = read(op.bias);
    const Norm want = norm(read(op.x), read(op.gain), &bias, 1e-5, true);
    // The mean of numbers near 4096 is exact to 4096 * 2^-24, about 2.4e-4 of a deviation; plus some roundings, more of
    // more numbers.
    everywhere(m, op, [&] { EXPECT_TRUE(close(op.y, want.y, 2e-3)); });
  }
}

TEST(Norms, RmsNormForward) {
  for_each_norm([](DType dtype, const NormCase& c) {
    Memory m;
    const RmsNormFwd op{.y = m.tensor(dtype, c.rows, c.cols, c.gap),
                        .rstd = m.tensor(DType::f32, 1, c.rows),
                        .x = m.tensor(dtype, c.rows, c.cols, c.gap, 0.5),
                        .gain = m.tensor(dtype, 1, c.cols),
                        .eps = 1e-5F,
                        .amax = amax_place(m, dtype)};
    const Norm want = norm(read(op.x), read(op.gain), nullptr, 1e-5, false);
    everywhere(m, op, [&] {
      EXPECT_TRUE(close(op.y, want.y, tolerance_of(dtype, kNormF32)));
      EXPECT_TRUE(is_amax(op.amax, op.y));
      EXPECT_TRUE(close(op.rstd, want.rstd, kNormF32));
    });
  });
}

// With a residual, x is an output: the sum, which is then normed.
TEST(Norms, WithResidual) {
  for_each_norm([](DType dtype, const NormCase& c) {
    for (const bool with_bias : {true, false}) {
      Memory m;
      const auto matrix = [&] { return m.tensor(dtype, c.rows, c.cols, c.gap); };
      const auto row = [&] { return m.tensor(dtype, 1, c.cols); };
      const Tensor x = matrix();
      const Residual residual{matrix(), matrix(), with_bias ? row() : Tensor{}};
      const LayerNormFwd layer{.y = matrix(),
                               .mean = m.tensor(DType::f32, 1, c.rows),
                               .rstd = m.tensor(DType::f32, 1, c.rows),
                               .x = x,
                               .gain = row(),
                               .bias = row(),
                               .eps = 1e-5F,
                               .residual = residual};
      const RmsNormFwd rms{
          .y = layer.y, .rstd = layer.rstd, .x = x, .gain = layer.gain, .eps = 1e-5F, .residual = residual};
      const Memory::Image before = m.save();
      Mat sum = plus(read(residual.a), read(residual.b));
      for (std::int64_t i = 0; with_bias && i < c.rows; ++i) {
        for (std::int64_t j = 0; j < c.cols; ++j) sum(i, j) += get(residual.bias, 0, j);
      }
      // The norm reads the rounded sum.
      const auto check = [&](bool centred) {
        const Mat bias = read(layer.bias);
        const Norm want = norm(read(x), read(layer.gain), centred ? &bias : nullptr, 1e-5, centred);
        EXPECT_TRUE(close(x, sum, tolerance_of(dtype, kNormF32)));
        EXPECT_TRUE(close(layer.y, want.y, tolerance_of(dtype, kNormF32)));
        EXPECT_TRUE(close(layer.rstd, want.rstd, kNormF32));
        if (centred) { EXPECT_TRUE(close(layer.mean, want.mean, kNormF32)); }
      };
      everywhere(m, layer, [&] { check(true); });
      m.restore(before);
      everywhere(m, rms, [&] { check(false); });
    }
  });
}

LayerNormBwd layernorm_bwd(Memory& m, DType dtype, const NormCase& c, bool accumulate, DType sums = DType::f32) {
  const LayerNormBwd op{.dx = m.tensor(dtype, c.rows, c.cols, c.gap),
                        .dgain = m.tensor(sums, 1, c.cols),
                        .dbias = m.tensor(sums, 1, c.cols),
                        .dy = m.tensor(dtype, c.rows, c.cols, c.gap),
                        .x = m.tensor(dtype, c.rows, c.cols, c.gap),
                        .mean = m.tensor(DType::f32, 1, c.rows),
                        .rstd = m.tensor(DType::f32, 1, c.rows),
                        .gain = m.tensor(dtype, 1, c.cols),
                        .accumulate = accumulate,
                        .amax = amax_place(m, dtype)};
  const Norm forward = norm(read(op.x), read(op.gain), nullptr, 1e-5, true);
  write(op.mean, forward.mean), write(op.rstd, forward.rstd);
  return op;
}
RmsNormBwd rmsnorm_bwd(Memory& m, DType dtype, const NormCase& c, bool accumulate, DType sums = DType::f32) {
  const RmsNormBwd op{.dx = m.tensor(dtype, c.rows, c.cols, c.gap),
                      .dgain = m.tensor(sums, 1, c.cols),
                      .dy = m.tensor(dtype, c.rows, c.cols, c.gap),
                      .x = m.tensor(dtype, c.rows, c.cols, c.gap),
                      .rstd = m.tensor(DType::f32, 1, c.rows),
                      .gain = m.tensor(dtype, 1, c.cols),
                      .accumulate = accumulate,
                      .amax = amax_place(m, dtype)};
  write(op.rstd, norm(read(op.x), read(op.gain), nullptr, 1e-5, false).rstd);
  return op;
}

TEST(Norms, Backward) {
  for_each_norm([](DType dtype, const NormCase& c) {
    for (const auto& [accumulate, sums] : {std::pair{false, DType::f32}, {true, DType::f32}, {true, DType::bf16}}) {
      {
        Memory m;
        const LayerNormBwd op = layernorm_bwd(m, dtype, c, accumulate, sums);
        NormGradient want = norm_gradient(read(op.dy), read(op.x), read(op.mean), read(op.rstd), read(op.gain), true);
        if (accumulate) want.dx = plus(want.dx, read(op.dx));
        const Mat dgain = plus(want.dgain, read(op.dgain)), dbias = plus(want.dbias, read(op.dbias));
        // With one column x is its own mean, and 1/sqrt(eps) multiplies the remainder of the subtraction. The gradient
        // is the difference of two equal numbers.
        const double f32 = c.cols == 1 ? 1e-3 : 2 * kNormF32;
        everywhere(m, op, [&] {
          if (c.cols > 1 || accumulate) { EXPECT_TRUE(close(op.dx, want.dx, tolerance_of(dtype, f32))); }
          EXPECT_TRUE(close(op.dgain, dgain, tolerance_of(sums, f32)));
          EXPECT_TRUE(close(op.dbias, dbias, tolerance_of(sums, 2 * kNormF32)));
          EXPECT_TRUE(is_amax(op.amax, op.dx));
        });
      }
      Memory m;
      const RmsNormBwd op = rmsnorm_bwd(m, dtype, c, accumulate, sums);
      const Mat zero(1, c.rows);
      NormGradient want = norm_gradient(read(op.dy), read(op.x), zero, read(op.rstd), read(op.gain), false);
      if (accumulate) want.dx = plus(want.dx, read(op.dx));
      const Mat dgain = plus(want.dgain, read(op.dgain));
      // With one column the gradient depends on eps only: it is the difference of two equal numbers.
      everywhere(m, op, [&] {
        if (c.cols > 1 || accumulate) { EXPECT_TRUE(close(op.dx, want.dx, tolerance_of(dtype, 2 * kNormF32))); }
        EXPECT_TRUE(close(op.dgain, dgain, tolerance_of(sums, 2 * kNormF32)));
        EXPECT_TRUE(is_amax(op.amax, op.dx));
      });
    }
  });
}

TEST(Norms, BackwardAgreesWithFiniteDifferences) {
  const NormCase c{4, 19, 3};
  Memory m;
  const LayerNormBwd layer = layernorm_bwd(m, DType::f32, c, false);
  const RmsNormBwd rms = rmsnorm_bwd(m, DType::f32, c, false);
  for (std::int64_t j = 0; j < c.cols; ++j)
    put(layer.dgain, 0, j, 0), put(layer.dbias, 0, j, 0), put(rms.dgain, 0, j, 0);
  const auto loss = [](const Mat& x, const Mat& gain, const Mat& bias, const Mat& dy, bool centred) {
    return weighted_sum(norm(x, gain, &bias, 1e-5, centred).y, dy);
  };
  const Mat bias(1, c.cols);
  {
    const Mat x = read(layer.x), gain = read(layer.gain), dy = read(layer.dy);
    const Mat dx = numeric_gradient([&](const Mat& at) { return loss(at, gain, bias, dy, true); }, x);
    const Mat dgain = numeric_gradient([&](const Mat& at) { return loss(x, at, bias, dy, true); }, gain);
    const Mat dbias = numeric_gradient([&](const Mat& at) { return loss(x, gain, at, dy, true); }, bias);
    everywhere(m, layer, [&] {
      EXPECT_TRUE(close(layer.dx, dx, 2 * kNormF32));
      EXPECT_TRUE(close(layer.dgain, dgain, 2 * kNormF32));
      EXPECT_TRUE(close(layer.dbias, dbias, 2 * kNormF32));
    });
  }
  const Mat x = read(rms.x), gain = read(rms.gain), dy = read(rms.dy);
  const Mat dx = numeric_gradient([&](const Mat& at) { return loss(at, gain, bias, dy, false); }, x);
  const Mat dgain = numeric_gradient([&](const Mat& at) { return loss(x, at, bias, dy, false); }, gain);
  everywhere(m, rms, [&] {
    EXPECT_TRUE(close(rms.dx, dx, 2 * kNormF32));
    EXPECT_TRUE(close(rms.dgain, dgain, 2 * kNormF32));
  });
}

// The norm of each head of a row is the norm of a row that is the head alone.
TEST(Norms, RmsNormOfHeads) {
  struct Row {
    std::int64_t rows, heads, size, gap;
  };
  for (const DType dtype : activation_types()) {
    for (const auto& [rows, heads, size, gap] :
         {Row{1, 2, 1, 0}, Row{5, 3, 6, 1}, Row{33, 4, 64, 32}, Row{90, 2, 128, 8}}) {
      SCOPED_TRACE(label(dtype, rows, heads * size));
      Memory m;
      const auto matrix = [&, rows = rows, cols = heads * size, gap = gap] { return m.tensor(dtype, rows, cols, gap); };
      const auto split = [heads = heads, size = size](const Mat& x) {
        Mat out(x.rows * heads, size);
        for (std::int64_t i = 0; i < x.rows; ++i) {
          for (std::int64_t j = 0; j < x.cols; ++j) out(i * heads + j / size, j % size) = x(i, j);
        }
        return out;
      };
      const RmsNormFwd forward{.y = matrix(),
                               .rstd = m.tensor(DType::f32, 1, rows * heads),
                               .x = matrix(),
                               .gain = m.tensor(dtype, 1, size),
                               .eps = 1e-5F,
                               .heads = heads};
      const Norm want = norm(split(read(forward.x)), read(forward.gain), nullptr, 1e-5, false);
      everywhere(m, forward, [&] {
        EXPECT_TRUE(close(forward.rstd, want.rstd, kNormF32));
        EXPECT_TRUE(close(split(read(forward.y)), want.y, tolerance_of(dtype, kNormF32)));
      });
      write(forward.rstd, want.rstd);
      // In place, as a layer does.
      RmsNormBwd backward{.dx = forward.y,
                          .dgain = m.tensor(DType::f32, 1, size),
                          .dy = forward.y,
                          .x = forward.x,
                          .rstd = forward.rstd,
                          .gain = forward.gain,
                          .heads = heads};
      const Mat zero(1, rows * heads);
      const NormGradient gradient = norm_gradient(split(read(backward.dy)), split(read(backward.x)), zero,
                                                  read(backward.rstd), read(backward.gain), false);
      const Mat dgain = plus(gradient.dgain, read(backward.dgain));
      everywhere(m, backward, [&] {
        // With one column the gradient depends on eps only: it is the difference of two equal numbers.
        if (size > 1) { EXPECT_TRUE(close(split(read(backward.dx)), gradient.dx, tolerance_of(dtype, 2 * kNormF32))); }
        EXPECT_TRUE(close(backward.dgain, dgain, 2 * kNormF32));
      });
    }
  }
}

TEST(Norms, ColumnSum) {
  bool accumulate = false;
  for_each_norm([&](DType dtype, const NormCase& c) {
    accumulate = !accumulate;  // in turns, and both for each type of the sums
    for (const DType sums : activation_types()) {
      Memory m;
      const ColumnSum op{
          .out = m.tensor(sums, 1, c.cols), .x = m.tensor(dtype, c.rows, c.cols, c.gap), .accumulate = accumulate};
      Mat want = accumulate ? read(op.out) : Mat(1, c.cols);
      for (std::int64_t i = 0; i < c.rows; ++i) {
        for (std::int64_t j = 0; j < c.cols; ++j) want(0, j) += get(op.x, i, j);
      }
      everywhere(m, op, [&] { EXPECT_TRUE(close(op.out, want, tolerance_of(sums, kNormF32))) << accumulate; });
    }
  });
}

TEST(Norms, AcceptsZeroRows) {
  Memory m;
  const ColumnSum op{.out = m.tensor(DType::f32, 1, 9), .x = m.tensor(DType::f32, 0, 9)};
  const Mat before = read(op.out);
  everywhere(m, op, [&] { EXPECT_TRUE(close(op.out, before, 0)); });
}

}  // namespace
}  // namespace ms::tensor::test
