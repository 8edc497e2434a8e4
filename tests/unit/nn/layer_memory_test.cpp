// The memory of a layer's tensors against the formulas of Korthikanti et al., "Reducing activation recomputation in
// large transformer models", which assume 16 bits, an MLP of four times hidden, and a byte mask for each of two
// dropouts, which we do not have.
#include <gtest/gtest.h>

#include "nn/chunk.h"

namespace ms::nn {
namespace {

// Every counted tensor is a multiple of the arena's alignment.
constexpr std::int64_t kBatch = 2, kSeq = 128, kHidden = 256, kHeads = 8;
constexpr double kTokenBytes = kBatch * kSeq * kHidden;  // at one byte an element

struct Case {
  bool parallel_block;
  int tp;
  bool sequence_parallel;
};
const std::vector<Case> kCases{{false, 1, false}, {true, 1, false}, {false, 4, false},
                               {true, 4, false},  {false, 4, true}, {true, 4, true}};

// Returns the bytes of a layer in a slot.
double kept(const Case& c, Recompute recompute, bool split_backward) {
  const ModelConfig model{
      .hidden = kHidden, .heads = kHeads, .seq = kSeq, .parallel_block = c.parallel_block, .window = 16};
  Shape shape;
  shape.model = &model;
  shape.batch = kBatch;
  shape.tp = c.tp;
  shape.sequence_parallel = c.sequence_parallel;
  shape.dtype = DType::bf16;
  shape.recompute = recompute;
  shape.split_backward = split_backward;
  Arena scratch_arena = Arena::measuring(), slot = Arena::measuring();
  const LayerScratch scratch = carve_scratch(scratch_arena, shape, {});
  carve_acts(slot, shape, scratch);
  return static_cast<double>(slot.used_bytes());
}

// Ranks that gather keys and values hold those of all, and their gradients; those that pass them around, those of two
// ranks, the gradients of three in f32, and outputs in f32.
TEST(LayerMemory, OfKeysAndValuesOfOtherRanks) {
  constexpr std::int64_t kKvHeads = 2, kTokens = kBatch * kSeq, kKeys = kTokens * 2 * kHidden * kKvHeads / kHeads;
  for (const int cp : {2, 4, 8}) {
    const ModelConfig model{
        .family = "llama", .hidden = kHidden, .heads = kHeads, .kv_heads = kKvHeads, .seq = kSeq * cp};
    const auto bytes = [&](CpType type, DType dtype) {
      const Shape shape{.model = &model, .batch = kBatch, .cp = cp, .cp_type = type, .dtype = dtype};
      const ModelConfig part{.family = "llama", .hidden = kHidden, .heads = kHeads, .kv_heads = kKvHeads, .seq = kSeq};
      const Shape alone{.model = &part, .batch = kBatch, .dtype = dtype};
      Arena with = Arena::measuring(), without = Arena::measuring();
      carve_scratch(with, shape, {}), carve_scratch(without, alone, {});
      return with.used_bytes() - without.used_bytes();
    };
    EXPECT_EQ(bytes(CpType::all_gather, DType::bf16), (1 + 3 * cp) * kKeys * 2) << cp;
    EXPECT_EQ(bytes(CpType::ring, DType::bf16), 2 * kKeys * 2 + 3 * kKeys * 4 + kTokens * kHidden * 4) << cp;
    EXPECT_EQ(bytes(CpType::ring, DType::f32), 5 * kKeys * 4) << cp;
  }
}

// A slot that chunks with layers of both kinds share has the memory of the larger one for each of its layers.
TEST(LayerMemory, OfSlotsWithDenseLayersAmongExperts) {
  ModelConfig model{.family = "llama", .layers = 4, .hidden = kHidden, .heads = kHeads, .seq = kSeq, .experts = 4};
  model.dense_layers = "0,2-3";
  Shape shape;
  shape.model = &model, shape.batch = kBatch, shape.dtype = DType::bf16;
  const auto bytes = [&](std::vector<ChunkPart> parts) {
    Arena arena = Arena::measuring();
    const LayerScratch scratch = carve_scratch(arena, shape, kinds_of(model, parts));
    const std::int64_t before = arena.used_bytes();
    const ChunkSlot slot = carve_slot(arena, shape, parts, scratch);
    EXPECT_EQ(slot.layers[0].x.data, parts[0].layer_begin == 0 ? slot.dense[0].x.data : slot.layers[0].x.data);
    return arena.used_bytes() - before;
  };
  const ChunkPart both{0, 2}, dense{2, 4};
  EXPECT_LT(bytes({dense}), bytes({both})) << "experts have more rows";
  EXPECT_EQ(bytes({both, dense}), bytes({both}));
  EXPECT_EQ(bytes({both, {1, 2}}) - bytes({both}), bytes({{1, 2}}) - bytes({{2, 3}})) << "layer 0, now of both kinds";
}

// Returns the bytes of the norms' mean and rstd, and of the log-sum-exp of every softmax.
double statistics(const Case& c) {
  const std::int64_t norms = c.parallel_block ? 1 : 2, rows = kBatch * kSeq / (c.sequence_parallel ? c.tp : 1);
  return static_cast<double>(4 * (norms * 2 * rows + kBatch * kHeads * kSeq / c.tp));
}

TEST(LayerMemory, FollowsTheFormulas) {
  for (const Case& c : kCases) {
    const std::string what = fmt::format("parallel {} tp {} sp {}", c.parallel_block, c.tp, c.sequence_parallel);
    const double share = c.sequence_parallel ? c.tp : 1;
    // The formulas call it selective not to keep the scores: ours are never kept.
    const double masks = 2 * kTokenBytes / share;
    // 34 = attention 11 + MLP 19 + norms 4, of which tensor parallelism alone leaves 10 whole on every rank. A parallel
    // block has one norm's input and output fewer.
    const double whole = c.parallel_block ? 6 : 10;
    const double all = kTokenBytes * (whole / share + 24.0 / c.tp) - masks + statistics(c);
    EXPECT_DOUBLE_EQ(kept(c, Recompute::none, false), all) << what;
    // Our selective does not keep the outputs of norms and of the activation.
    const double cheap = kTokenBytes * ((c.parallel_block ? 2 : 4) / share + 8.0 / c.tp);
    EXPECT_DOUBLE_EQ(kept(c, Recompute::selective, false), all - cheap) << what;
    EXPECT_DOUBLE_EQ(kept(c, Recompute::full, false), 2 * kTokenBytes / share) << what;
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      // The output gradients of the matmuls, all-gathered for row-parallel ones, of which a parallel block has one.
      EXPECT_DOUBLE_EQ(kept(c, recompute, true) - kept(c, recompute, false),
                       kTokenBytes * ((c.parallel_block ? 2 : 4) + 14.0 / c.tp))
          << what;
    }
  }
}

}  // namespace
}  // namespace ms::nn
