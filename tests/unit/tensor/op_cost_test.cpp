// FLOPs and bytes of ops, counted by hand.
#include "tensor/op_cost.h"

#include <gtest/gtest.h>

#include "tensor/stream.h"

namespace ms::tensor {
namespace {

Arena& arena() {
  static Arena arena = Arena::measuring();
  return arena;
}
Tensor f32(std::int64_t rows, std::int64_t cols) { return arena().take(DType::f32, rows, cols); }
Tensor bf16(std::int64_t rows, std::int64_t cols) { return arena().take(DType::bf16, rows, cols); }
Tensor i32(std::int64_t rows, std::int64_t cols) { return arena().take(DType::i32, rows, cols); }

struct CostRow {
  const char* what;
  Op op;
  OpCost cost;
};
void expect_costs(const std::vector<CostRow>& rows) {
  for (const CostRow& row : rows) {
    const OpCost cost = cost_of(row.op);
    EXPECT_EQ(to_string(cost.op_class), to_string(row.cost.op_class)) << row.what;
    EXPECT_EQ(cost.half, row.cost.half) << row.what;
    EXPECT_DOUBLE_EQ(cost.flops, row.cost.flops) << row.what;
    EXPECT_EQ(cost.gemms, row.cost.gemms) << row.what;
    EXPECT_DOUBLE_EQ(cost.bytes, row.cost.bytes) << row.what;
  }
}

OpCost matmul_cost(bool half, double flops, double bytes) {
  return {.op_class = OpClass::matmul, .half = half, .flops = flops, .bytes = bytes};
}
OpCost moved(OpClass op_class, double bytes) { return {.op_class = op_class, .bytes = bytes}; }

// Three experts of [5,7], seven slots.
TEST(OpCosts, GroupedMatmuls) {
  const Tensor offsets = i32(1, 4);
  const double flops = 2 * 7 * 5 * 7, weights = 3 * 5 * 7, by_slot = 7 * 5 + 7 * 7, at = 4 * 4;
  const auto three = [](bool half, double of, double bytes) {
    OpCost cost = matmul_cost(half, of, bytes);
    cost.gemms = 3;
    return cost;
  };
  GroupedMatmul sparse{bf16(7, 5), bf16(7, 7), bf16(15, 7), offsets, false, true};
  sparse.used = 2 / 7.0;
  GroupedMatmul part{bf16(6, 5), bf16(6, 7), bf16(15, 7), offsets, false, true};
  part.range = {.first = 1, .count = 1}, part.used = 0.5;
  expect_costs({
      {"forward", GroupedMatmul{bf16(7, 5), bf16(7, 7), bf16(15, 7), offsets, false, true},
       three(true, flops, 2 * (weights + by_slot) + at)},
      {"input's gradient", GroupedMatmul{f32(7, 7), f32(7, 5), f32(15, 7), offsets},
       three(false, flops, 4 * (weights + by_slot) + at)},
      {"weights' gradient", GroupedMatmul{f32(15, 7), bf16(7, 5), bf16(7, 7), offsets, true, false, true},
       three(true, flops, 2 * by_slot + 2 * 4 * weights + at)},
      {"two of seven slots used", sparse, three(true, flops * 2 / 7, 2 * (weights + by_slot * 2 / 7) + at)},
      {"one expert, one of its two slots used", part, matmul_cost(true, 2 * 5 * 7, 2 * (5 * 7 + 5 + 7) + at)},
  });
}

TEST(OpCosts, SumsOfTheUsedRowsOfExperts) {
  const double offsets = 4.0 * 2 * 5, rows = 2 * (12 + 6) * 5;
  expect_costs({
      {"all", ExpertSum{bf16(6, 5), bf16(12, 5), i32(2, 5)}, moved(OpClass::elementwise, offsets + rows)},
      {"a third", ExpertSum{.y = bf16(6, 5), .x = bf16(12, 5), .offsets = i32(2, 5), .used = 1 / 3.0},
       moved(OpClass::elementwise, offsets + rows / 3)},
  });
}

TEST(OpCosts, Matmuls) {
  // M 3, N 5, K 7.
  const double flops = 2 * 3 * 5 * 7, a = 3 * 7, b = 7 * 5, c = 3 * 5;
  const Tensor none;
  expect_costs({
      {"plain", Matmul{f32(3, 5), f32(3, 7), f32(7, 5), none}, matmul_cost(false, flops, 4 * (a + b + c))},
      {"a transposed", Matmul{.c = f32(3, 5), .a = f32(7, 3), .b = f32(7, 5), .bias = none, .transpose_a = true},
       matmul_cost(false, flops, 4 * (a + b + c))},
      {"b transposed", Matmul{.c = f32(3, 5), .a = f32(3, 7), .b = f32(5, 7), .bias = none, .transpose_b = true},
       matmul_cost(false, flops, 4 * (a + b + c))},
      {"both transposed",
       Matmul{.c = f32(3, 5), .a = f32(7, 3), .b = f32(5, 7), .bias = none, .transpose_a = true, .transpose_b = true},
       matmul_cost(false, flops, 4 * (a + b + c))},
      {"with a bias", Matmul{f32(3, 5), f32(3, 7), f32(7, 5), f32(1, 5)},
       matmul_cost(false, flops, 4 * (a + b + c + 5))},
      {"added into c", Matmul{.c = f32(3, 5), .a = f32(3, 7), .b = f32(7, 5), .bias = none, .accumulate = true},
       matmul_cost(false, flops, 4 * (a + b + 2 * c))},
      {"16 bits", Matmul{bf16(3, 5), bf16(3, 7), bf16(7, 5), none}, matmul_cost(true, flops, 2 * (a + b + c))},
      // A weight's gradient counts as half precision by its operands, whatever type it accumulates in.
      {"16 bits into 32",
       Matmul{.c = f32(3, 5), .a = bf16(7, 3), .b = bf16(7, 5), .bias = none, .transpose_a = true, .accumulate = true},
       matmul_cost(true, flops, 2 * (a + b) + 4 * 2 * c)},
      // Each operand is read once more for its amax; the rounded copy is written and read at one byte an element.
      {"rounded", Matmul{.c = bf16(3, 5), .a = bf16(3, 7), .b = bf16(7, 5), .operands = Operands::fp8},
       matmul_cost(true, flops, 2 * c + (2 + 2 + 1 + 1) * (a + b))},
      {"rounded, amaxes known",
       Matmul{.c = bf16(3, 5),
              .a = bf16(3, 7),
              .b = bf16(7, 5),
              .operands = Operands::fp8_gradient,
              .a_amax = f32(1, 1),
              .b_amax = f32(1, 1)},
       matmul_cost(true, flops, 2 * c + (2 + 1 + 1) * (a + b) + 8)},
      // Only the fp8 numbers are read of what was rounded before.
      {"rounded before",
       Matmul{.c = bf16(3, 5),
              .a = bf16(3, 7),
              .b = bf16(7, 5),
              .operands = Operands::fp8_gradient,
              .a_amax = f32(1, 2),
              .b_amax = f32(1, 1),
              .a_rounded = bf16(3, 7)},
       matmul_cost(true, flops, 2 * c + a + (2 + 1 + 1) * b + 12)},
      {"what rounds", RoundToFp8{.out = bf16(3, 7), .amax = f32(1, 2), .x = bf16(3, 7)},
       moved(OpClass::elementwise, (2 + 2 + 2) * a + 8)},
      {"what rounds, amax known", RoundToFp8{.out = bf16(3, 7), .amax = f32(1, 2), .x = bf16(3, 7), .has_amax = true},
       moved(OpClass::elementwise, (2 + 2) * a + 8)},
      // The sums of its rows read nothing more.
      {"what rounds and sums",
       RoundToFp8{.out = bf16(3, 7), .amax = f32(1, 2), .x = bf16(3, 7), .sums = f32(1, 7), .accumulate = false},
       moved(OpClass::elementwise, (2 + 2 + 2) * a + 8 + 4 * 7)},
      {"what rounds and adds sums",
       RoundToFp8{.out = bf16(3, 7), .amax = f32(1, 2), .x = bf16(3, 7), .sums = f32(1, 7)},
       moved(OpClass::elementwise, (2 + 2 + 2) * a + 8 + 2 * 4 * 7)},
      {"what finds them", Amax{.out = f32(1, 1), .x = bf16(3, 7)}, moved(OpClass::elementwise, 2 * a + 4)},
      {"with a GELU", Matmul{.c = bf16(3, 5), .a = bf16(3, 7), .b = bf16(7, 5), .gelu_y = bf16(3, 5)},
       matmul_cost(true, flops, 2 * (a + b + 2 * c))},
      // A bias gradient reads nothing more.
      {"with sums", Matmul{.c = f32(3, 5), .a = bf16(7, 3), .b = bf16(7, 5), .transpose_a = true, .a_sums = f32(1, 3)},
       matmul_cost(true, flops, 2 * (a + b) + 4 * (c + 3))},
      {"with sums added",
       Matmul{.c = f32(3, 5),
              .a = bf16(7, 3),
              .b = bf16(7, 5),
              .transpose_a = true,
              .accumulate = true,
              .a_sums = f32(1, 3)},
       matmul_cost(true, flops, 2 * (a + b) + 2 * 4 * (c + 3))},
  });
}

// An operand is read for its amax, and read and written to be rounded, unless that is done.
TEST(OpCosts, CastsAreCountedAlone) {
  Matmul op{.c = bf16(3, 5), .a = bf16(3, 7), .b = bf16(7, 5)};
  EXPECT_EQ(cost_of(op).cast_bytes, 0);
  op.operands = Operands::fp8;
  EXPECT_EQ(cost_of(op).cast_bytes, (2 + 2 + 1) * (21 + 35));
  op.a_amax = f32(1, 2);
  EXPECT_EQ(cost_of(op).cast_bytes, (2 + 1) * 21 + (2 + 2 + 1) * 35);
  op.a_rounded = bf16(3, 7);
  EXPECT_EQ(cost_of(op).cast_bytes, (2 + 2 + 1) * 35);
}

TEST(OpCosts, ViewsCountOnlyTheirElements) {
  // Views of a fused matrix have gaps between their rows, which are not read.
  const Tensor fused = bf16(4, 30);
  expect_costs({{"a view", Matmul{bf16(4, 6), fused.slice_cols(10, 10), bf16(10, 6), {}},
                 matmul_cost(true, 2 * 4 * 6 * 10, 2 * (4 * 6 + 4 * 10 + 10 * 6))}});
}

TEST(OpCosts, Attention) {
  constexpr std::int64_t kBatch = 2, kSeq = 5, kHeads = 4, kKvHeads = 2, kDim = 8, kTokens = kBatch * kSeq;
  struct Case {
    std::int64_t window;
    double pairs;  // of one head of one sequence
  };
  // A query sees itself and all before it: 1 + 2 + 3 + 4 + 5; with a window of two 1 + 2 + 2 + 2 + 2.
  for (const Case& c : {Case{0, 15}, {2, 9}, {1, 5}, {5, 15}, {100, 15}}) {
    AttentionFwd forward{.o = bf16(kTokens, kHeads * kDim),
                         .lse = f32(kBatch * kHeads, kSeq),
                         .q = bf16(kTokens, kHeads * kDim),
                         .k = bf16(kTokens, kKvHeads * kDim),
                         .v = bf16(kTokens, kKvHeads * kDim),
                         .batch = kBatch,
                         .seq = kSeq,
                         .heads = kHeads,
                         .kv_heads = kKvHeads,
                         .head_dim = kDim,
                         .window = c.window};
    const double wide = 2 * kTokens * kHeads * kDim, narrow = 2 * kTokens * kKvHeads * kDim;
    const double rows = 4 * kBatch * kHeads * kSeq;
    const double matmul_flops = 2 * c.pairs * kBatch * kHeads * kDim;
    AttentionBwd backward{.dq = bf16(kTokens, kHeads * kDim),
                          .dk = bf16(kTokens, kKvHeads * kDim),
                          .dv = bf16(kTokens, kKvHeads * kDim),
                          .dout = bf16(kTokens, kHeads * kDim),
                          .o = forward.o,
                          .lse = forward.lse,
                          .q = forward.q,
                          .k = forward.k,
                          .v = forward.v,
                          .delta = f32(kBatch * kHeads, kSeq),
                          .batch = kBatch,
                          .seq = kSeq,
                          .heads = kHeads,
                          .kv_heads = kKvHeads,
                          .head_dim = kDim,
                          .window = c.window};
    const auto attention = [](bool half, double flops, double bytes) {
      return OpCost{.op_class = OpClass::attention, .half = half, .flops = flops, .bytes = bytes};
    };
    expect_costs({
        // q k and p v; q, o are wide, k, v narrow.
        {"forward", forward, attention(true, 2 * matmul_flops, 2 * wide + 2 * narrow + rows)},
        // The scores again, dv, dp, dq, dk; dq, dout, o, q are wide.
        {"backward", backward, attention(true, 5 * matmul_flops, 4 * wide + 4 * narrow + 2 * rows)},
    });
    forward.q = f32(kTokens, kHeads * kDim);
    EXPECT_FALSE(cost_of(forward).half);
  }
}

// Queries 4 and 5 of six, keys 1 to 3: all six pairs, or with a window of three those of query 4 with 2 and 3, of query
// 5 with 3.
TEST(OpCosts, AttentionOfSomeKeys) {
  constexpr std::int64_t kBatch = 2, kHeads = 4, kDim = 8, kQueries = 2, kKeys = 3;
  for (const auto& [window, pairs] : {std::pair{0, 6}, {3, 3}, {1, 0}}) {
    AttentionFwd op{.o = f32(kBatch * kQueries, kHeads * kDim),
                    .lse = f32(kBatch * kHeads, kQueries),
                    .q = bf16(kBatch * kQueries, kHeads * kDim),
                    .k = bf16(kBatch * kKeys, kHeads * kDim),
                    .v = bf16(kBatch * kKeys, kHeads * kDim),
                    .batch = kBatch,
                    .seq = 6,
                    .heads = kHeads,
                    .kv_heads = kHeads,
                    .head_dim = kDim,
                    .window = window,
                    .first = 4,
                    .keys_first = 1};
    EXPECT_EQ(cost_of(op).flops, 2 * 2.0 * pairs * kBatch * kHeads * kDim) << window;
    const double bytes = cost_of(op).bytes;
    op.merges = true;
    EXPECT_EQ(cost_of(op).bytes - bytes, 4.0 * kBatch * kHeads * kQueries * (kDim + 1)) << "o and lse are read";
  }
}

TEST(OpCosts, Optimizers) {
  constexpr std::int64_t kParams = 1000;
  const Tensor none, factor = f32(1, 1);
  const auto weights = [] { return f32(1, kParams); };
  expect_costs({
      // bf16 with a master copy: the gradient is read (4), m, v and the master are read and written (24), the parameter
      // is written (2).
      {"adamw", AdamW{bf16(1, kParams), weights(), weights(), weights(), weights(), factor},
       moved(OpClass::optimizer, 30.0 * kParams + 4)},
      // f32: the parameter is its own master.
      {"adamw of f32", AdamW{weights(), none, weights(), weights(), weights(), factor},
       moved(OpClass::optimizer, 28.0 * kParams + 4)},
      {"first half of lamb", LambMoments{none, weights(), weights(), weights(), weights(), factor},
       moved(OpClass::optimizer, 24.0 * kParams + 4)},
      {"second half of lamb", LambApply{bf16(1, kParams), weights(), weights(), weights(), none, factor},
       moved(OpClass::optimizer, 18.0 * kParams + 4)},
      {"second half of lamb of f32", LambApply{weights(), none, weights(), weights(), none, factor},
       moved(OpClass::optimizer, 16.0 * kParams + 4)},
      {"momentum of muon", MuonMomentum{bf16(1, kParams), weights(), weights(), factor},
       moved(OpClass::optimizer, 14.0 * kParams + 4)},
      {"normalize", Normalize{bf16(1, kParams), bf16(1, kParams), {}}, moved(OpClass::optimizer, 4.0 * kParams)},
      {"blend", Blend{bf16(1, kParams), bf16(1, kParams), weights()}, moved(OpClass::optimizer, 8.0 * kParams)},
      {"update of muon", MuonApply{bf16(1, kParams), weights(), bf16(1, kParams), factor},
       moved(OpClass::optimizer, 12.0 * kParams + 4)},
  });
}

TEST(OpCosts, EmbeddingsCountOnlySelectedRows) {
  // 6 tokens of width 10. The tokens themselves, 4 bytes each, are negligible.
  const double row = 2 * 10, tokens = 4 * 6;
  for (const std::int64_t vocab : {8, 50'000}) {
    const double forward = cost_of(EmbeddingFwd{bf16(6, 10), bf16(vocab, 10), i32(1, 6)}).bytes;
    EXPECT_GE(forward, 6 * row + 6 * row) << vocab;
    EXPECT_LE(forward, 6 * row + 6 * row + tokens) << vocab;
    // The gradient's table is f32, and its rows are read and written.
    const double backward = cost_of(EmbeddingBwd{f32(vocab, 10), bf16(6, 10), i32(1, 6)}).bytes;
    EXPECT_GE(backward, 6 * row + 2 * 6 * 2 * row) << vocab;
    EXPECT_LE(backward, 6 * row + 2 * 6 * 2 * row + tokens) << vocab;
  }
  expect_costs({
      {"position", PositionFwd{bf16(6, 10), bf16(6, 10)}, moved(OpClass::embedding, 3 * 6 * row)},
      {"position of a longer table", PositionFwd{bf16(6, 10), bf16(999, 10)}, moved(OpClass::embedding, 3 * 6 * row)},
      {"its gradient", PositionBwd{f32(999, 10), bf16(6, 10)}, moved(OpClass::embedding, 6 * row + 2 * 6 * 2 * row)},
  });
  EXPECT_EQ(cost_of(EmbeddingFwd{bf16(6, 10), bf16(8, 10), i32(1, 6)}).op_class, OpClass::embedding);
  EXPECT_EQ(cost_of(EmbeddingBwd{f32(8, 10), bf16(6, 10), i32(1, 6)}).op_class, OpClass::embedding);
}

TEST(OpCosts, InPlaceOpsReadAndWrite) {
  const double x = 2 * 6 * 16;
  expect_costs({
      {"rotary", Rotary{.x = bf16(6, 16), .table = f32(3, 8), .seq = 3, .head_dim = 8},
       moved(OpClass::elementwise, 2 * x + 4 * 3 * 8)},
      {"gelu", GeluFwd{bf16(6, 16), bf16(6, 16)}, moved(OpClass::activation, 2 * x)},
      {"swiglu by factors", SwigluFwd{.y = bf16(6, 8), .x = bf16(6, 16), .factors = f32(1, 6)},
       moved(OpClass::activation, 1.5 * x + 24)},
      {"swiglu", SwigluFwd{bf16(6, 8), bf16(6, 16)}, moved(OpClass::activation, 1.5 * x)},
      {"swiglu and its amax", SwigluFwd{bf16(6, 8), bf16(6, 16), f32(1, 1)}, moved(OpClass::activation, 1.5 * x + 4)},
      {"add", Add{bf16(6, 16), bf16(6, 16), bf16(6, 16), {}}, moved(OpClass::elementwise, 3 * x)},
      {"fill", Fill{.x = f32(6, 16)}, moved(OpClass::elementwise, 2 * x)},
      {"copy to another type", Copy{.dst = f32(6, 16), .src = bf16(6, 16)}, moved(OpClass::elementwise, 3 * x)},
      {"loss", LossBackward{.logits = bf16(6, 16), .lse = f32(1, 6), .targets = i32(1, 6)},
       moved(OpClass::loss, 2 * x + 2 * 4 * 6)},
  });
  // A norm's gradient that accumulates reads the residual's gradient too.
  LayerNormBwd layer{.dx = bf16(6, 16),
                     .dgain = f32(1, 16),
                     .dbias = f32(1, 16),
                     .dy = bf16(6, 16),
                     .x = bf16(6, 16),
                     .mean = f32(1, 6),
                     .rstd = f32(1, 6),
                     .gain = bf16(1, 16)};
  RmsNormBwd rms{
      .dx = layer.dx, .dgain = layer.dgain, .dy = layer.dy, .x = layer.x, .rstd = layer.rstd, .gain = layer.gain};
  const double layer_bytes = cost_of(layer).bytes, rms_bytes = cost_of(rms).bytes;
  layer.accumulate = rms.accumulate = true;
  EXPECT_DOUBLE_EQ(cost_of(layer).bytes, layer_bytes + x);
  EXPECT_DOUBLE_EQ(cost_of(rms).bytes, rms_bytes + x);
  EXPECT_DOUBLE_EQ(layer_bytes - rms_bytes, 4 * 16 + 4 * 6) << "dbias and the means";
}

TEST(OpCosts, EqualOpsHaveEqualCosts) {
  // A simulation keeps equal costs once.
  const Op one = Fill{.x = f32(6, 16)}, alike = Fill{.x = f32(16, 6), .value = 3}, other = Fill{.x = f32(6, 17)};
  EXPECT_EQ(cost_of(one), cost_of(alike));
  EXPECT_NE(cost_of(one), cost_of(other));
}

}  // namespace
}  // namespace ms::tensor
