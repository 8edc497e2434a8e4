// Gradients that are another op or a chain of ops, against finite differences of the forward in f64: rotary, tables,
// bias, matmuls, the loss over shards. Ops with a backward of their own are checked beside their forward.
#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "support.h"
#include "tensor/cpu_matmul.h"

namespace ms::tensor::test {
namespace {

constexpr double kGradientF32 = 2e-6;  // about ten roundings; the differences themselves are exact to 1e-9

TEST(Gradient, RotationIsTheInverseRotation) {
  const std::int64_t seq = 5, head_dim = 6, half = head_dim / 2;
  Memory m;
  const Tensor x = m.tensor(DType::f32, 2 * seq, 2 * head_dim), dy = m.tensor(DType::f32, 2 * seq, 2 * head_dim);
  const Tensor table = m.tensor(DType::f32, seq, head_dim);
  cpu_kernels().run(RotaryTable{.table = table, .base = 100.0F});
  const Mat weights = read(dy), angles = read(table);
  const auto loss = [&](const Mat& at) {
    Mat y = at;
    for (std::int64_t t = 0; t < y.rows; ++t) {
      for (std::int64_t j = 0; j < y.cols; ++j) {
        const std::int64_t i = j % half, pair = j % head_dim < half ? j + half : j - half;
        const double sine = (pair > j ? -1 : 1) * angles(t % seq, half + i);
        y(t, j) = at(t, j) * angles(t % seq, i) + at(t, pair) * sine;
      }
    }
    return weighted_sum(y, weights);
  };
  const Mat want = numeric_gradient(loss, read(x));
  everywhere(m, Rotary{.x = dy, .table = table, .seq = seq, .head_dim = head_dim, .inverse = true},
             [&] { EXPECT_TRUE(close(dy, want, kGradientF32)); });
}

// y[t] = table[row_of(t)], 0 if there is no such row. Embeddings and positions differ only in row_of.
TEST(Gradient, Tables) {
  const std::int64_t rows = 23, cols = 9, held = 6, first = 2, offset = 4;
  Memory m;
  const Tensor dy = m.tensor(DType::f32, rows, cols, 1), tokens = m.tensor(DType::i32, 1, rows);
  const Tensor embedding = m.of(DType::f32, Mat(held, cols), 1), position = m.of(DType::f32, Mat(held, cols));
  for (std::int64_t t = 0; t < rows; ++t) {
    put(tokens, 0, t, static_cast<double>(uniform_below(1, 1, static_cast<std::uint64_t>(t), 10)));
  }
  const Mat weights = read(dy), ids = read(tokens);
  const auto gradient = [&](const std::function<std::int64_t(std::int64_t)>& row_of) {
    const auto loss = [&](const Mat& table) {
      Mat y(rows, cols);
      for (std::int64_t t = 0; t < rows; ++t) {
        const std::int64_t row = row_of(t);
        for (std::int64_t j = 0; j < cols && row >= 0 && row < held; ++j) y(t, j) = table(row, j);
      }
      return weighted_sum(y, weights);
    };
    return numeric_gradient(loss, Mat(held, cols));
  };
  const Mat by_token = gradient([&](std::int64_t t) { return static_cast<std::int64_t>(ids(0, t)) - first; });
  const Mat by_place = gradient([&](std::int64_t t) { return (offset + t) % held; });
  everywhere(m, EmbeddingBwd{.dtable = embedding, .dy = dy, .tokens = tokens, .first = first},
             [&] { EXPECT_TRUE(close(embedding, by_token, kGradientF32)); });
  everywhere(m, PositionBwd{.dtable = position, .dy = dy, .offset = offset},
             [&] { EXPECT_TRUE(close(position, by_place, kGradientF32)); });
}

Mat times(const Mat& a, const Mat& b) {  // a b^T
  Mat c(a.rows, b.rows);
  for (std::int64_t i = 0; i < c.rows; ++i) {
    for (std::int64_t j = 0; j < c.cols; ++j) {
      for (std::int64_t k = 0; k < a.cols; ++k) c(i, j) += a(i, k) * b(j, k);
    }
  }
  return c;
}

// y = x w^T + bias, as in the layers: dx = dy w, dw += dy^T x, dbias += column sums of dy.
TEST(Gradient, Projection) {
  const std::int64_t tokens = 6, in = 11, out = 9;
  Memory m;
  const Tensor x = m.tensor(DType::f32, tokens, in), w = m.tensor(DType::f32, out, in),
               dy = m.tensor(DType::f32, tokens, out);
  const Tensor dx = m.tensor(DType::f32, tokens, in), dw = m.of(DType::f32, Mat(out, in));
  const Tensor dbias = m.of(DType::f32, Mat(1, out));
  const auto loss = [&](const Mat& at_x, const Mat& at_w, const Mat& at_bias) {
    Mat y = times(at_x, at_w);
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t j = 0; j < out; ++j) y(t, j) += at_bias(0, j);
    }
    return weighted_sum(y, read(dy));
  };
  const Mat bias(1, out);
  const Mat want_dx = numeric_gradient([&](const Mat& at) { return loss(at, read(w), bias); }, read(x));
  const Mat want_dw = numeric_gradient([&](const Mat& at) { return loss(read(x), at, bias); }, read(w));
  const Mat want_dbias = numeric_gradient([&](const Mat& at) { return loss(read(x), read(w), at); }, bias);
  everywhere(m, ColumnSum{.out = dbias, .x = dy}, [&] { EXPECT_TRUE(close(dbias, want_dbias, kGradientF32)); });
  MatmulCache cache;
  cache.run({.c = dx, .a = dy, .b = w, .bias = {}});
  cache.run({.c = dw, .a = dy, .b = x, .bias = {}, .transpose_a = true, .accumulate = true});
  EXPECT_TRUE(close(dx, want_dx, kGradientF32));
  EXPECT_TRUE(close(dw, want_dw, kGradientF32));
}

// The whole chain: each op reads what the previous one computed. The shards are columns of one tensor.
TEST(Gradient, LossOverShards) {
  const std::int64_t rows = 4, vocabulary = 13, padded = 16;
  const double scale = 0.25;
  for (const std::int64_t shards : {1, 2, 4, 8}) {  // the last of eight is all padding
    SCOPED_TRACE(testing::Message() << shards << " shards");
    Memory m;
    const Tensor logits = m.tensor(DType::f32, rows, padded, 0, 2.0), targets = m.tensor(DType::i32, 1, rows);
    const Tensor gathered = m.tensor(DType::f32, 3 * shards, rows);
    const Tensor loss = m.tensor(DType::f32, 1, rows), lse = m.tensor(DType::f32, 1, rows);
    for (std::int64_t t = 0; t < rows; ++t) {
      put(targets, 0, t, static_cast<double>(5 * t % vocabulary));
      for (std::int64_t j = vocabulary; j < padded; ++j) put(logits, t, j, 1e30);  // must not be read
    }
    const auto total_loss = [&](const Mat& at) {
      double total = 0;
      for (std::int64_t t = 0; t < rows; ++t) {
        double sum = 0;
        for (std::int64_t j = 0; j < vocabulary; ++j) sum += std::exp(at(t, j));
        total += scale * (std::log(sum) - at(t, 5 * t % vocabulary));
      }
      return total;
    };
    const Mat start = read(logits.slice_cols(0, vocabulary)), want = numeric_gradient(total_loss, start);
    const std::int64_t held = padded / shards;
    const auto valid = [&](std::int64_t first) { return std::clamp<std::int64_t>(vocabulary - first, 0, held); };
    const auto run = [](const Op& op) { cpu_kernels().run(op); };
    for (std::int64_t s = 0; s < shards; ++s) {
      run(LossStats{.stats = gathered.slice_rows(3 * s, 3),
                    .logits = logits.slice_cols(s * held, held),
                    .targets = targets,
                    .first = s * held,
                    .valid = valid(s * held)});
    }
    run(LossCombine{.loss = loss, .lse = lse, .gathered = gathered, .targets = targets});
    for (std::int64_t s = 0; s < shards; ++s) {
      run(LossBackward{.logits = logits.slice_cols(s * held, held),
                       .lse = lse,
                       .targets = targets,
                       .first = s * held,
                       .valid = valid(s * held),
                       .scale = static_cast<float>(scale)});
    }
    double total = 0;
    for (std::int64_t t = 0; t < rows; ++t) total += scale * get(loss, 0, t);
    EXPECT_NEAR(total, total_loss(start), kGradientF32 * total);
    EXPECT_TRUE(close(logits.slice_cols(0, vocabulary), want, kGradientF32));
    EXPECT_EQ(read(logits.slice_cols(vocabulary, padded - vocabulary)).values, Mat(rows, padded - vocabulary).values);
    EXPECT_TRUE(m.guards_intact());
  }
}

}  // namespace
}  // namespace ms::tensor::test
