// Attention to keys part by part, in any order, against attention to all of them: outputs that merge, gradients that
// add up, parts that a query does not see.
#include <algorithm>
#include <cmath>

#include "support.h"

namespace ms::tensor::test {
namespace {

struct PartsCase {
  std::int64_t batch, seq, heads, kv_heads, head_dim, window;
  std::int64_t document = 0;            // tokens of one; 0: a sequence is one document
  std::vector<std::int64_t> cuts = {};  // keys at which parts begin, after the first
  std::int64_t query_cut = 0;           // query at which the second part of queries begins
};
const PartsCase kPartsCases[] = {
    {1, 7, 2, 1, 12, 0, 0, {3}, 3},           {2, 96, 4, 2, 16, 0, 0, {24, 48, 72}, 48},
    {1, 200, 2, 1, 32, 17, 0, {50, 100}, 75}, {1, 130, 2, 2, 20, 0, 33, {65}, 65},
    {2, 130, 2, 1, 8, 40, 21, {33, 97}, 97},  {1, 300, 1, 1, 64, 0, 150, {1, 75, 150, 299}, 150},
    {1, 256, 6, 2, 64, 100, 0, {128}, 192},
};

// One of a sum's terms is rounded differently, and exponents of both sums are: units in the last place of a score.
constexpr double kPartsF32 = 2e-6;

struct Range {
  std::int64_t first, count;
};
std::vector<Range> ranges(std::vector<std::int64_t> cuts, std::int64_t all) {
  std::vector<Range> parts;
  std::int64_t first = 0;
  cuts.push_back(all);
  for (const std::int64_t cut : cuts) parts.push_back({first, cut - first}), first = cut;
  return parts;
}

// Returns the rows of a range of each sequence, one sequence's below another's, in memory of their own.
Tensor rows_of(Memory& m, const Tensor& x, std::int64_t batch, const Range& range) {
  const Tensor rows = m.tensor(x.dtype, batch * range.count, x.cols, 5);
  for (std::int64_t b = 0; b < batch; ++b)
    write(rows.slice_rows(b * range.count, range.count),
          read(x.slice_rows(b * (x.rows / batch) + range.first, range.count)));
  return rows;
}

AttentionFwd whole_forward(Memory& m, DType dtype, const PartsCase& c) {
  const std::int64_t tokens = c.batch * c.seq;
  AttentionFwd op{.o = m.tensor(dtype, tokens, c.heads * c.head_dim, 3),
                  .lse = m.tensor(DType::f32, c.batch * c.heads, c.seq),
                  .q = m.tensor(dtype, tokens, c.heads * c.head_dim, 1),
                  .k = m.tensor(dtype, tokens, c.kv_heads * c.head_dim, 2),
                  .v = m.tensor(dtype, tokens, c.kv_heads * c.head_dim),
                  .batch = c.batch,
                  .seq = c.seq,
                  .heads = c.heads,
                  .kv_heads = c.kv_heads,
                  .head_dim = c.head_dim,
                  .window = c.window,
                  .scale = 1.0F / std::sqrt(static_cast<float>(c.head_dim))};
  if (c.document == 0) return op;
  op.starts = m.tensor(DType::i32, 1, tokens);
  for (std::int64_t t = 0; t < tokens; ++t)
    put(op.starts, 0, t, static_cast<double>(t % c.seq / c.document * c.document));
  return op;
}

AttentionBwd whole_backward(Memory& m, const AttentionFwd& op) {
  const auto like = [&](const Tensor& x) { return m.tensor(x.dtype, x.rows, x.cols); };
  return {.dq = like(op.q),
          .dk = like(op.k),
          .dv = like(op.v),
          .dout = like(op.q),
          .o = op.o,
          .lse = op.lse,
          .q = op.q,
          .k = op.k,
          .v = op.v,
          .delta = like(op.lse),
          .batch = op.batch,
          .seq = op.seq,
          .heads = op.heads,
          .kv_heads = op.kv_heads,
          .head_dim = op.head_dim,
          .window = op.window,
          .scale = op.scale,
          .starts = op.starts};
}

// Replaces queries by those of a range, and what belongs to them; outputs are f32, of their own.
template <class Attention>
Attention with_queries(Memory& m, const Attention& whole, const Range& queries) {
  Attention part = whole;
  part.first = queries.first;
  part.q = rows_of(m, whole.q, whole.batch, queries);
  part.lse = m.tensor(DType::f32, whole.lse.rows, queries.count);
  if constexpr (requires { part.dq; }) {
    part.o = rows_of(m, whole.o, whole.batch, queries);
    part.dout = rows_of(m, whole.dout, whole.batch, queries);
    write(part.lse, read(whole.lse.slice_cols(queries.first, queries.count)));
    part.delta = m.tensor(DType::f32, whole.lse.rows, queries.count);
    part.dq = m.tensor(DType::f32, part.q.rows, part.q.cols, 4);
  } else {
    part.o = m.tensor(DType::f32, part.q.rows, part.q.cols, 4);
  }
  return part;
}

// In bf16 the whole's result is rounded, and its probabilities may be, each by half a unit in its last place, relative
// to another maximum than those of a part.
double tolerance(DType dtype) { return dtype == DType::f32 ? kPartsF32 : 4 * kBf16Tolerance; }

template <class Body>
void for_each_parts_case(Body&& body) {
  for (const DType dtype : activation_types()) {
    for (const PartsCase& c : kPartsCases) {
      for (const CpuKernels* kernels : variants()) {
        SCOPED_TRACE(testing::Message() << to_string(dtype) << " batch " << c.batch << " seq " << c.seq << " heads "
                                        << c.heads << "/" << c.kv_heads << " of " << c.head_dim << " window "
                                        << c.window << " documents of " << c.document << " "
                                        << to_string(kernels->isa));
        Memory m;
        body(m, dtype, c, *kernels);
        EXPECT_TRUE(m.guards_intact());
      }
    }
  }
}

// Checks that queries without a key so far have nothing.
void expect_empty(const AttentionFwd& op, std::int64_t keys_first) {
  for (std::int64_t i = 0; i < std::min(op.queries(), keys_first - op.first); ++i) {
    EXPECT_EQ(get(op.o, i, 0), 0) << "query " << op.first + i;
    EXPECT_EQ(get(op.lse, 0, i), -INFINITY) << "query " << op.first + i;
  }
}

TEST(AttentionParts, OutputsMergeInAnyOrder) {
  for_each_parts_case([](Memory& m, DType dtype, const PartsCase& c, const CpuKernels& kernels) {
    const AttentionFwd whole = whole_forward(m, dtype, c);
    kernels.run(whole);
    std::vector<Range> parts = ranges(c.cuts, c.seq);
    for (const char* order : {"forwards", "backwards", "from the middle"}) {
      SCOPED_TRACE(order);
      for (const Range& queries : ranges({c.query_cut}, c.seq)) {
        AttentionFwd part = with_queries(m, whole, queries);
        for (const Range& keys : parts) {
          part.k = rows_of(m, whole.k, c.batch, keys), part.v = rows_of(m, whole.v, c.batch, keys);
          part.keys_first = keys.first;
          kernels.run(part);
          if (!part.merges) expect_empty(part, keys.first);
          part.merges = true;
        }
        for (std::int64_t b = 0; b < c.batch; ++b) {
          const Tensor want = whole.o.slice_rows(b * c.seq + queries.first, queries.count);
          EXPECT_TRUE(close(part.o.slice_rows(b * queries.count, queries.count), read(want), tolerance(dtype)));
        }
        EXPECT_TRUE(close(part.lse, read(whole.lse.slice_cols(queries.first, queries.count)), kPartsF32));
      }
      if (order[0] == 'f') {
        std::ranges::reverse(parts);
      } else {
        std::rotate(parts.begin(), parts.begin() + std::ssize(parts) / 2, parts.end());
      }
    }
  });
}

// A part that no query sees changes nothing: not a bit.
TEST(AttentionParts, UnseenKeysChangeNothing) {
  for_each_parts_case([](Memory& m, DType dtype, const PartsCase& c, const CpuKernels& kernels) {
    const AttentionFwd whole = whole_forward(m, dtype, c);
    const Range queries{0, c.query_cut}, unseen{c.query_cut, c.seq - c.query_cut};
    AttentionFwd part = with_queries(m, whole, queries);
    part.k = rows_of(m, whole.k, c.batch, queries), part.v = rows_of(m, whole.v, c.batch, queries);
    kernels.run(part);
    const Mat o = read(part.o), lse = read(part.lse);
    part.k = rows_of(m, whole.k, c.batch, unseen), part.v = rows_of(m, whole.v, c.batch, unseen);
    part.keys_first = unseen.first, part.merges = true;
    kernels.run(part);
    EXPECT_TRUE(close(part.o, o, 0));
    EXPECT_TRUE(close(part.lse, lse, 0));
  });
}

TEST(AttentionParts, GradientsAddUp) {
  for_each_parts_case([](Memory& m, DType dtype, const PartsCase& c, const CpuKernels& kernels) {
    const AttentionFwd forward = whole_forward(m, dtype, c);
    kernels.run(forward);
    const AttentionBwd whole = whole_backward(m, forward);
    kernels.run(whole);
    std::vector<AttentionBwd> by_queries;
    for (const Range& queries : ranges({c.query_cut}, c.seq)) by_queries.push_back(with_queries(m, whole, queries));
    std::vector<Range> parts = ranges(c.cuts, c.seq);
    std::ranges::reverse(parts);
    for (const Range& keys : parts) {
      const Tensor k = rows_of(m, whole.k, c.batch, keys), v = rows_of(m, whole.v, c.batch, keys);
      const Tensor dk = m.tensor(DType::f32, k.rows, k.cols, 1), dv = m.tensor(DType::f32, v.rows, v.cols);
      for (AttentionBwd& part : by_queries) {
        part.k = k, part.v = v, part.dk = dk, part.dv = dv;
        part.keys_first = keys.first, part.adds = &part != &by_queries.front();
        kernels.run(part);
        part.adds_queries = true;
      }
      for (std::int64_t b = 0; b < c.batch; ++b) {
        const auto want = [&](const Tensor& x) { return read(x.slice_rows(b * c.seq + keys.first, keys.count)); };
        EXPECT_TRUE(close(dk.slice_rows(b * keys.count, keys.count), want(whole.dk), 2 * tolerance(dtype)));
        EXPECT_TRUE(close(dv.slice_rows(b * keys.count, keys.count), want(whole.dv), 2 * tolerance(dtype)));
      }
    }
    for (const AttentionBwd& part : by_queries) {
      for (std::int64_t b = 0; b < c.batch; ++b) {
        const Tensor want = whole.dq.slice_rows(b * c.seq + part.first, part.queries());
        const Tensor got = part.dq.slice_rows(b * part.queries(), part.queries());
        EXPECT_TRUE(close(got, read(want), 2 * tolerance(dtype)));
      }
    }
  });
}

}  // namespace
}  // namespace ms::tensor::test
