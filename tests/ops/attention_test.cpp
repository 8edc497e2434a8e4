// Attention against plain softmax in f64, gradients against finite differences: masks, windows, grouped heads, odd
// sizes.
#include <algorithm>
#include <cmath>

#include "support.h"

namespace ms::tensor::test {
namespace {

// A score sums d products, and a probability is 2^score: the error is a few units in the last place of the largest
// score.
constexpr double kAttentionF32 = 1e-5;

struct AttentionCase {
  std::int64_t batch, seq, heads, kv_heads, head_dim, window;
  double spread = 1.0;        // deviation of q: large values give probabilities near 0 or 1
  std::int64_t document = 0;  // tokens of one, the first is shorter; 0: a sequence is one document
};
constexpr AttentionCase kAttentionCases[] = {
    {1, 1, 1, 1, 2, 0},
    {1, 7, 2, 1, 12, 0},
    {2, 64, 2, 2, 64, 0},
    {1, 65, 1, 1, 64, 0},
    {1, 130, 4, 2, 20, 0},
    {1, 200, 2, 1, 32, 17},
    {1, 129, 2, 2, 128, 64},
    {1, 70, 1, 1, 256, 1},
    {2, 100, 6, 2, 6, 33},
    {1, 96, 3, 1, 96, 200},
    {1, 80, 2, 2, 10, 0, 40},
    {1, 20, 1, 1, 5, 0},
    {1, 150, 1, 1, 254, 65},
    {2, 70, 2, 1, 8, 0, 1.0, 1},
    {1, 200, 2, 1, 32, 0, 1.0, 33},
    {2, 130, 4, 2, 20, 0, 1.0, 65},
    {1, 200, 2, 1, 16, 17, 1.0, 40},
    {1, 300, 1, 1, 64, 0, 1.0, 150},
};

// q, k and v are columns of one tensor, as the projection writes them.
struct Heads {
  Tensor q, k, v;
};
Heads cut(const Tensor& qkv, const AttentionCase& c) {
  const std::int64_t q = c.heads * c.head_dim, kv = c.kv_heads * c.head_dim;
  return {qkv.slice_cols(0, q), qkv.slice_cols(q, kv), qkv.slice_cols(q + kv, kv)};
}
// Elements between rows. GPUs require head sizes and row pitches in multiples of eight.
bool in_eights(const AttentionCase& c) { return c.head_dim % 8 == 0; }
std::int64_t gap(const AttentionCase& c) { return in_eights(c) ? 8 : 3; }

Tensor make_qkv(Memory& m, DType dtype, const AttentionCase& c) {
  return m.tensor(dtype, c.batch * c.seq, (c.heads + 2 * c.kv_heads) * c.head_dim, gap(c));
}

std::int64_t start_of(const AttentionCase& c, std::int64_t query) {
  if (c.document == 0) return 0;
  const std::int64_t cut = c.document / 3;  // from the first
  return std::max<std::int64_t>(0, (query + cut) / c.document * c.document - cut);
}

bool sees(const AttentionCase& c, std::int64_t query, std::int64_t key) {
  return key <= query && (c.window == 0 || key > query - c.window) && key >= start_of(c, query);
}

Tensor make_starts(Memory& m, const AttentionCase& c) {
  if (c.document == 0) return {};
  const Tensor starts = m.tensor(DType::i32, 1, c.batch * c.seq);
  for (std::int64_t t = 0; t < starts.cols; ++t) put(starts, 0, t, static_cast<double>(start_of(c, t % c.seq)));
  return starts;
}

// Calls f(b, h, kv head's first column, q's first column) for every head.
template <class Body>
void for_each_head(const AttentionCase& c, Body&& body) {
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.heads; ++h) body(b, h, h / (c.heads / c.kv_heads) * c.head_dim, h * c.head_dim);
  }
}

struct Forward {
  Mat o, lse, o_mass;  // a mass is the sum of the terms' magnitudes
};
Forward attention(const AttentionCase& c, double scale, const Mat& q, const Mat& k, const Mat& v) {
  Forward out{Mat(q.rows, q.cols), Mat(c.batch * c.heads, c.seq), Mat(q.rows, q.cols)};
  for_each_head(c, [&](std::int64_t b, std::int64_t h, std::int64_t kv0, std::int64_t q0) {
    for (std::int64_t i = 0; i < c.seq; ++i) {
      const std::int64_t row = b * c.seq + i;
      std::vector<double> scores(static_cast<std::size_t>(c.seq), -INFINITY);
      double top = -INFINITY, total = 0;
      for (std::int64_t j = 0; j < c.seq; ++j) {
        if (!sees(c, i, j)) continue;
        double dot = 0;
        for (std::int64_t x = 0; x < c.head_dim; ++x) dot += q(row, q0 + x) * k(b * c.seq + j, kv0 + x);
        scores[static_cast<std::size_t>(j)] = scale * dot;
        top = std::max(top, scale * dot);
      }
      for (const double s : scores) total += std::exp(s - top);
      out.lse(b * c.heads + h, i) = top + std::log(total);
      for (std::int64_t j = 0; j < c.seq; ++j) {
        const double p = std::exp(scores[static_cast<std::size_t>(j)] - top) / total;
        for (std::int64_t x = 0; x < c.head_dim; ++x) {
          const double term = p * v(b * c.seq + j, kv0 + x);
          out.o(row, q0 + x) += term, out.o_mass(row, q0 + x) += std::abs(term);
        }
      }
    }
  });
  return out;
}

struct Gradient {
  Mat dq, dk, dv, delta, dq_mass, dk_mass, dv_mass;
};
// Computes the gradient from the given o and lse, as the op does.
Gradient attention_gradient(const AttentionCase& c, double scale, const Mat& q, const Mat& k, const Mat& v,
                            const Mat& o, const Mat& lse, const Mat& dout) {
  Gradient out{Mat(q.rows, q.cols), Mat(k.rows, k.cols), Mat(k.rows, k.cols), Mat(lse.rows, lse.cols),
               Mat(q.rows, q.cols), Mat(k.rows, k.cols), Mat(k.rows, k.cols)};
  const auto add = [](Mat& sums, Mat& mass, std::int64_t row_at, std::int64_t col, double term) {
    sums(row_at, col) += term, mass(row_at, col) += std::abs(term);
  };
  for_each_head(c, [&](std::int64_t b, std::int64_t h, std::int64_t kv0, std::int64_t q0) {
    for (std::int64_t i = 0; i < c.seq; ++i) {
      const std::int64_t row = b * c.seq + i;
      double& delta = out.delta(b * c.heads + h, i);
      for (std::int64_t x = 0; x < c.head_dim; ++x) delta += dout(row, q0 + x) * o(row, q0 + x);
      for (std::int64_t j = 0; j < c.seq; ++j) {
        if (!sees(c, i, j)) continue;
        const std::int64_t key = b * c.seq + j;
        double dot = 0, dp = 0;
        for (std::int64_t x = 0; x < c.head_dim; ++x) {
          dot += q(row, q0 + x) * k(key, kv0 + x), dp += dout(row, q0 + x) * v(key, kv0 + x);
        }
        const double p = std::exp(scale * dot - lse(b * c.heads + h, i)), ds = p * (dp - delta) * scale;
        for (std::int64_t x = 0; x < c.head_dim; ++x) {
          add(out.dv, out.dv_mass, key, kv0 + x, p * dout(row, q0 + x));
          add(out.dk, out.dk_mass, key, kv0 + x, ds * q(row, q0 + x));
          add(out.dq, out.dq_mass, row, q0 + x, ds * k(key, kv0 + x));
        }
      }
    }
  });
  return out;
}

float scale_of(const AttentionCase& c) { return 1.0F / std::sqrt(static_cast<float>(c.head_dim)); }

AttentionFwd forward_op(Memory& m, DType dtype, const AttentionCase& c) {
  const Heads in = cut(make_qkv(m, dtype, c), c);
  Mat q = read(in.q);
  for (double& x : q.values) x *= c.spread;
  write(in.q, q);
  return {.o = m.tensor(dtype, c.batch * c.seq, c.heads * c.head_dim, 2 * gap(c)),
          .lse = m.tensor(DType::f32, c.batch * c.heads, c.seq, in_eights(c) ? 0 : 1),
          .q = in.q,
          .k = in.k,
          .v = in.v,
          .batch = c.batch,
          .seq = c.seq,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .window = c.window,
          .scale = scale_of(c),
          .starts = make_starts(m, c)};
}

// Returns the op with o and lse of the reference.
AttentionBwd backward_op(Memory& m, DType dtype, const AttentionCase& c) {
  const AttentionFwd fwd = forward_op(m, dtype, c);
  const Forward want = attention(c, static_cast<double>(fwd.scale), read(fwd.q), read(fwd.k), read(fwd.v));
  write(fwd.o, want.o), write(fwd.lse, want.lse);
  const Heads grads = cut(make_qkv(m, dtype, c), c);
  return {.dq = grads.q,
          .dk = grads.k,
          .dv = grads.v,
          .dout = m.tensor(dtype, c.batch * c.seq, c.heads * c.head_dim, 3 * gap(c)),
          .o = fwd.o,
          .lse = fwd.lse,
          .q = fwd.q,
          .k = fwd.k,
          .v = fwd.v,
          .delta = m.tensor(DType::f32, c.batch * c.heads, c.seq),
          .batch = c.batch,
          .seq = c.seq,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .window = c.window,
          .scale = fwd.scale,
          .starts = fwd.starts};
}

// In bf16, probabilities and gradients of scores may be rounded before they are multiplied, each by half a unit in the
// last place, 2^-9. `mass` sums the terms' magnitudes: where terms cancel it exceeds the result.
testing::AssertionResult close_to(const Tensor& got, const Mat& want, const Mat& mass, double f32) {
  if (got.dtype == DType::f32) return close(got, want, f32);
  Mat rest = read(got);
  for (std::size_t i = 0; i < rest.values.size(); ++i) {
    const double error = rest.values[i] - want.values[i];
    const double over = std::abs(error) - mass.values[i] / 512;  // NaN if the result is
    rest.values[i] = over <= 0 ? want.values[i] : want.values[i] + std::copysign(over, error);
  }
  return close(rest, want, kBf16Tolerance);
}

template <class Body>
void for_each_attention(Body&& body) {
  for (const DType dtype : activation_types()) {
    for (const AttentionCase& c : kAttentionCases) {
      SCOPED_TRACE(testing::Message() << to_string(dtype) << " batch " << c.batch << " seq " << c.seq << " heads "
                                      << c.heads << "/" << c.kv_heads << " of " << c.head_dim << " window " << c.window
                                      << " documents of " << c.document);
      // A score's error is absolute: some units in the last place of the largest score.
      body(dtype, c, kAttentionF32 * std::max(1.0, c.spread));
    }
  }
}

TEST(Attention, Forward) {
  for_each_attention([](DType dtype, const AttentionCase& c, double f32) {
    Memory m;
    const AttentionFwd op = forward_op(m, dtype, c);
    const Forward want = attention(c, static_cast<double>(op.scale), read(op.q), read(op.k), read(op.v));
    everywhere(m, op, [&] {
      EXPECT_TRUE(close_to(op.o, want.o, want.o_mass, f32));
      EXPECT_TRUE(close(op.lse, want.lse, kAttentionF32));
    });
  });
}

// Some of the queries, as text is generated: the bits that they have among all of them.
TEST(Attention, OfSomeQueries) {
  for (const DType dtype : activation_types()) {
    for (const AttentionCase& c : kAttentionCases) {
      Memory m;
      const AttentionFwd whole = forward_op(m, dtype, c);
      for (const auto& [first, count] : {std::pair{c.seq - 1, std::int64_t{1}},
                                         {c.seq / 2, std::int64_t{1}},
                                         {c.seq / 3, c.seq - c.seq / 3},
                                         {std::int64_t{0}, (c.seq + 1) / 2}}) {
        if (c.batch > 1) continue;
        SCOPED_TRACE(testing::Message() << to_string(dtype) << " seq " << c.seq << " heads " << c.heads << " of "
                                        << c.head_dim << " window " << c.window << " documents of " << c.document
                                        << ", queries " << first << "+" << count);
        AttentionFwd part = whole;
        part.q = whole.q.slice_rows(first, count);
        part.o = m.tensor(dtype, count, c.heads * c.head_dim, gap(c));
        part.lse = m.tensor(DType::f32, c.heads, count, in_eights(c) ? 0 : 1);
        part.first = first;
        for (const CpuKernels* kernels : variants()) {
          kernels->run(whole), kernels->run(part);
          EXPECT_TRUE(close(part.o, read(whole.o.slice_rows(first, count)), 0)) << to_string(kernels->isa);
          EXPECT_TRUE(close(part.lse, read(whole.lse.slice_cols(first, count)), 0)) << to_string(kernels->isa);
        }
      }
      EXPECT_TRUE(m.guards_intact());
    }
  }
}

TEST(Attention, Backward) {
  for_each_attention([](DType dtype, const AttentionCase& c, double f32) {
    Memory m;
    const AttentionBwd op = backward_op(m, dtype, c);
    const Gradient want = attention_gradient(c, static_cast<double>(op.scale), read(op.q), read(op.k), read(op.v),
                                             read(op.o), read(op.lse), read(op.dout));
    everywhere(m, op, [&] {
      EXPECT_TRUE(close_to(op.dv, want.dv, want.dv_mass, f32));
      EXPECT_TRUE(close(op.delta, want.delta, f32));
      // With one key the probability is 1, whatever the scores: dq and dk are only rounding.
      if (c.seq == 1 || c.window == 1 || c.document == 1) return;
      EXPECT_TRUE(close_to(op.dq, want.dq, want.dq_mass, 2 * f32));
      EXPECT_TRUE(close_to(op.dk, want.dk, want.dk_mass, 2 * f32));
    });
  });
}

// Two parts of the queries, one after the other: the gradients of queries have the bits that they have among all of
// them, and those of keys and values are sums of both parts'.
TEST(Attention, BackwardOfSomeQueries) {
  for (const DType dtype : activation_types()) {
    for (const AttentionCase& c : kAttentionCases) {
      if (c.batch > 1 || c.seq == 1) continue;
      SCOPED_TRACE(testing::Message() << to_string(dtype) << " seq " << c.seq << " of " << c.head_dim << " window "
                                      << c.window << " documents of " << c.document);
      Memory m;
      const AttentionBwd whole = backward_op(m, dtype, c);
      const Heads sums = cut(make_qkv(m, dtype, c), c);
      // In bf16 both parts are rounded, their sum, and that of all.
      const double tolerance = 4 * (dtype == DType::f32 ? kAttentionF32 : kBf16Tolerance);
      for (const CpuKernels* kernels : variants()) {
        kernels->run(whole);
        for (const auto& [first, count] : {std::pair{c.seq / 3, c.seq - c.seq / 3}, {std::int64_t{0}, c.seq / 3}}) {
          if (count == 0) continue;
          AttentionBwd part = whole;
          for (Tensor AttentionBwd::*x : {&AttentionBwd::q, &AttentionBwd::o, &AttentionBwd::dout})
            part.*x = (whole.*x).slice_rows(first, count);
          part.dq = sums.q.slice_rows(first, count), part.dk = sums.k, part.dv = sums.v;
          part.lse = whole.lse.slice_cols(first, count);
          part.delta = m.tensor(DType::f32, c.heads, count);
          part.first = first, part.adds = first == 0;
          kernels->run(part);
          EXPECT_TRUE(close(part.dq, read(whole.dq.slice_rows(first, count)), 0)) << to_string(kernels->isa);
          EXPECT_TRUE(close(part.delta, read(whole.delta.slice_cols(first, count)), 0)) << to_string(kernels->isa);
        }
        EXPECT_TRUE(close(sums.k, read(whole.dk), tolerance)) << to_string(kernels->isa);
        EXPECT_TRUE(close(sums.v, read(whole.dv), tolerance)) << to_string(kernels->isa);
      }
      EXPECT_TRUE(m.guards_intact());
    }
  }
}

TEST(Attention, OneKeyGivesItsValueAndNoGradientOfScores) {
  const AttentionCase c{1, 40, 2, 1, 8, 1};
  Memory m;
  const AttentionBwd op = backward_op(m, DType::f32, c);
  everywhere(m, op, [&] {
    for (std::int64_t i = 0; i < c.seq; ++i) {
      for (std::int64_t x = 0; x < c.head_dim; ++x) EXPECT_NEAR(get(op.dq, i, x), 0, 1e-5);
    }
  });
}

TEST(Attention, BackwardAgreesWithFiniteDifferences) {
  for (const AttentionCase& c :
       {AttentionCase{1, 9, 2, 1, 4, 0}, AttentionCase{2, 11, 2, 2, 6, 4}, AttentionCase{2, 12, 2, 1, 4, 0, 1.0, 5}}) {
    Memory m;
    const AttentionBwd op = backward_op(m, DType::f32, c);
    const Mat q = read(op.q), k = read(op.k), v = read(op.v), dout = read(op.dout);
    const auto loss = [&](const Mat& at_q, const Mat& at_k, const Mat& at_v) {
      return weighted_sum(attention(c, static_cast<double>(op.scale), at_q, at_k, at_v).o, dout);
    };
    const Mat dq = numeric_gradient([&](const Mat& at) { return loss(at, k, v); }, q);
    const Mat dk = numeric_gradient([&](const Mat& at) { return loss(q, at, v); }, k);
    const Mat dv = numeric_gradient([&](const Mat& at) { return loss(q, k, at); }, v);
    everywhere(m, op, [&] {
      EXPECT_TRUE(close(op.dq, dq, 2 * kAttentionF32));
      EXPECT_TRUE(close(op.dk, dk, 2 * kAttentionF32));
      EXPECT_TRUE(close(op.dv, dv, 2 * kAttentionF32));
    });
  }
}

TEST(Attention, PropagatesNan) {
  const AttentionCase c{1, 70, 1, 1, 16, 0};
  Memory m;
  const AttentionFwd op = forward_op(m, DType::f32, c);
  put(op.k, 30, 2, NAN);
  everywhere(m, op, [&] {
    EXPECT_FALSE(std::isnan(get(op.o, 29, 0)));  // query 29 does not see key 30
    EXPECT_TRUE(std::isnan(get(op.o, 30, 0)));
    EXPECT_TRUE(std::isnan(get(op.o, 69, 15)));
    EXPECT_TRUE(std::isnan(get(op.lse, 0, 69)));
  });
}

}  // namespace
}  // namespace ms::tensor::test
