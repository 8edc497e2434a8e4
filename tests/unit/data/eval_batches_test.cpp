// Data sets in batches, as the loader of a node fills its ring with them.
#include "data/eval_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "data/batch_reader.h"
#include "data/fill_ring.h"
#include "token_files.h"

namespace ms::data {
namespace {

TEST(EvalBatches, GiveEachRankItsRowsOfOneSetAfterAnother) {
  const TempDir dir;
  std::vector<std::int32_t> tokens(100);
  std::iota(tokens.begin(), tokens.end(), 0);
  write_tokens(dir / "a", {{tokens.begin(), tokens.begin() + 19}});
  write_tokens(dir / "b", {{tokens.begin() + 50, tokens.begin() + 53}, {tokens.begin() + 53, tokens.begin() + 66}});
  constexpr std::int64_t kSeq = 4, kGlobalBatch = 4;
  std::vector<EvalSet> sets;
  for (const std::string name : {"a", "b"}) sets.emplace_back(EvalSource{name, dir / name}, kSeq, 100, 0);
  const EvalBatches batches(std::move(sets), kGlobalBatch);
  const EvalFacts facts = EvalFacts::parse(batches.facts());
  ASSERT_EQ(facts.sets.size(), 2U);
  EXPECT_EQ(facts.sets[0].windows, 5);
  EXPECT_EQ(facts.sets[0].predictions, 18);
  EXPECT_EQ(facts.sets[0].batches(kGlobalBatch), 2);
  EXPECT_EQ(facts.sets[1].windows, 4);
  EXPECT_EQ(facts.sets[1].batches(kGlobalBatch), 1);

  BatchRing ring({.parts = 2, .rows = 2, .seq = kSeq, .has_starts = true});
  SourceLoaders loaders(batches, LoaderCount(2, 2));
  const LoaderTask task{.order = {.end = 3}, .dp_ranks = {0, 1}, .division = {.dp = 2}};
  const std::jthread filling([&] { fill_ring(loaders, ring, task); });
  using Row = std::vector<std::int32_t>;
  const std::vector<std::array<Row, 2>> expected{
      {Row{0, 1, 2, 3, 4, 4, 5, 6, 7, 8}, Row{8, 9, 10, 11, 12, 12, 13, 14, 15, 16}},
      {Row{16, 17, 18, -1, -1, -1, -1, -1, -1, -1}, Row(10, -1)},
      {Row{50, 51, 52, 53, 54, 54, 55, 56, 57, 58}, Row{58, 59, 60, 61, 62, 62, 63, 64, 65, -1}}};
  for (std::size_t step = 0; step < expected.size(); ++step) {
    ASSERT_TRUE(ring.wait_published(step, std::chrono::seconds(60)));
    for (int part = 0; part < 2; ++part) {
      EXPECT_THAT(ring.part(step, part).rows,
                  testing::ElementsAreArray(expected[step][static_cast<std::size_t>(part)]));
    }
    const Row starts = step == 2 ? Row{0, 0, 0, 3, 0, 0, 0, 0} : Row(8, 0);
    EXPECT_THAT(ring.part(step, 0).starts, testing::ElementsAreArray(starts));
    ring.release(0, step);
  }
}

}  // namespace
}  // namespace ms::data
