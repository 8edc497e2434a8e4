// Slices of parameters, of flat spans, and of the stack of layers.
#include "mesh/shard.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "mesh/layers.h"

namespace ms::mesh {
namespace {

TEST(Cut, EqualPartsOrNothing) {
  EXPECT_EQ(cut_equal(12, 3, 0), (Range{0, 4}));
  EXPECT_EQ(cut_equal(12, 3, 2), (Range{8, 12}));
  EXPECT_EQ(cut_equal(0, 3, 1), (Range{0, 0}));
  EXPECT_FALSE(cut_equal(13, 3, 0));
  EXPECT_EQ(pad_to_multiple(50257, 128), 50304);
  EXPECT_EQ(pad_to_multiple(128, 128), 128);
  EXPECT_EQ(pad_to_multiple(0, 7), 0);
}

TEST(Shard, RowsAndColumns) {
  const auto rows = shard_rows("w", 8, 3, 4, 1);
  ASSERT_TRUE(rows);
  EXPECT_EQ(*rows,
            (ShardSpec{.name = "w", .global_rows = 8, .global_cols = 3, .row0 = 2, .rows = 2, .col0 = 0, .cols = 3}));
  EXPECT_EQ(rows->size(), 6);
  EXPECT_EQ(rows->global_size(), 24);
  EXPECT_EQ(rows->logical_rows(), 2);
  const auto cols = shard_cols("w", 3, 8, 4, 3);
  ASSERT_TRUE(cols);
  EXPECT_EQ(*cols,
            (ShardSpec{.name = "w", .global_rows = 3, .global_cols = 8, .row0 = 0, .rows = 3, .col0 = 6, .cols = 2}));
  EXPECT_FALSE(shard_rows("w", 9, 3, 4, 1));
  EXPECT_FALSE(shard_cols("w", 3, 9, 4, 1));
  EXPECT_TRUE(replicated("w", 1, 5).replicated);
  EXPECT_EQ(replicated("w", 1, 5).size(), 5);
}

TEST(Shard, PaddedVocabularyIsNotPartOfTheParameter) {
  for (const std::int64_t vocab : {1, 61, 257, 50257, 50260}) {
    for (const auto& [tp, multiple] : {std::pair{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 64}, {8, 64}, {3, 10}}) {
      std::int64_t logical = 0;
      std::int64_t stored = 0;
      for (int i = 0; i < tp; ++i) {
        const ShardSpec spec = shard_rows_padded("embed", vocab, 16, tp, i, multiple);
        EXPECT_EQ(spec.global_rows, vocab);
        EXPECT_EQ(spec.row0, stored);
        EXPECT_EQ(spec.rows, pad_to_multiple(vocab, tp * multiple) / tp);
        EXPECT_EQ(spec.rows % multiple, 0);
        stored += spec.rows;
        logical += spec.logical_rows();
      }
      EXPECT_EQ(logical, vocab) << vocab << " over " << tp;
      EXPECT_EQ(stored, pad_to_multiple(vocab, tp * multiple));
    }
  }
  // More padding than a slice is long: the last ones hold nothing of the parameter.
  EXPECT_EQ(shard_rows_padded("embed", 1, 16, 8, 7).logical_rows(), 0);
}

TEST(Zero, PartsFitOneCollective) {
  for (const std::int64_t n : {0, 1, 63, 64, 65, 127, 128, 1000, 4096, 99999, 1 << 20}) {
    for (const int d : {1, 2, 3, 4, 7, 8, 64, 100}) {
      const std::int64_t part = zero_part(n, d);
      EXPECT_EQ(part % kZeroAlign, 0);
      EXPECT_EQ(zero_padded(n, d), part * d);
      EXPECT_GE(zero_padded(n, d), n);
      EXPECT_LT(part - (n + d - 1) / d, kZeroAlign) << "no more padding than alignment asks for";
    }
  }
}

TEST(Layers, EveryStageHasConsecutiveLayers) {
  for (const std::int64_t layers : {1, 2, 7, 8, 96, 105}) {
    for (const int pp : {1, 2, 3, 8, 35}) {
      for (const int chunks : {1, 2, 3, 6}) {
        if (layers < pp * chunks) {
          EXPECT_THROW(layers_of(layers, pp, chunks, 0), Error);
          continue;
        }
        std::int64_t next = 0;
        std::int64_t before = layers;
        for (int stage = 0; stage < pp * chunks; ++stage) {
          const Range range = layers_of(layers, pp, chunks, stage);
          EXPECT_EQ(range.begin, next);
          EXPECT_GE(range.size(), 1);
          EXPECT_LE(range.size(), before) << "the longer stages come first";
          EXPECT_GE(range.size(), layers / (pp * chunks));
          before = range.size();
          next = range.end;
        }
        EXPECT_EQ(next, layers);
      }
    }
  }
  EXPECT_EQ(layers_of(7, 2, 2, 2), (Range{4, 6}));
  EXPECT_EQ(layers_of(7, 2, 2, 3), (Range{6, 7}));
}

TEST(Layers, TheEndsMayHaveTheirOwnNumber) {
  for (const EndLayers& ends : {EndLayers{1, 0}, {0, 2}, {3, 1}, {1, 1}}) {
    for (const std::int64_t layers : {8, 13, 126}) {
      for (const auto& [pp, chunks] : {std::pair{2, 1}, {4, 1}, {2, 3}}) {
        const int stages = pp * chunks;
        if (!layers_problem(layers, pp, chunks, ends).empty()) {
          EXPECT_THROW(layers_of(layers, pp, chunks, 0, ends), Error);
          continue;
        }
        std::int64_t next = 0, most = 0, least = layers;
        for (int stage = 0; stage < stages; ++stage) {
          const Range range = layers_of(layers, pp, chunks, stage, ends);
          EXPECT_EQ(range.begin, next);
          next = range.end;
          const std::int64_t given = stage == 0 ? ends.first : stage == stages - 1 ? ends.last : 0;
          if (given > 0) {
            EXPECT_EQ(range.size(), given);
          } else {
            most = std::max(most, range.size()), least = std::min(least, range.size());
          }
        }
        EXPECT_EQ(next, layers);
        if (most > 0) {
          EXPECT_LE(most - least, 1);
          EXPECT_GE(least, 1);
        }
      }
    }
  }
  // Llama 3.1 405B: 126 layers, and the embedding and the head count as a layer each.
  for (int stage = 0; stage < 64; ++stage)
    EXPECT_EQ(layers_of(126, 8, 8, stage, {1, 1}).size(), stage == 0 || stage == 63 ? 1 : 2);
  for (const auto& [pp, chunks, ends] :
       {std::tuple{1, 1, EndLayers{1, 0}}, {2, 1, {4, 3}}, {3, 1, {4, 4}}, {2, 1, {0, 8}}, {4, 1, {9, 0}}})
    EXPECT_FALSE(layers_problem(8, pp, chunks, ends).empty());
}

TEST(Layers, StagesGoRoundTheRanks) {
  for (int stage = 0; stage < 24; ++stage) EXPECT_EQ(stage_of(pp_rank_of(stage, 4), stage / 4, 4), stage);
  EXPECT_EQ(pp_rank_of(5, 4), 1);
}

}  // namespace
}  // namespace ms::mesh
