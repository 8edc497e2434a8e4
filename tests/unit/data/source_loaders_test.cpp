// Source loaders: as many as ranks make necessary, sources divided by what they take, and batches that do not tell how
// many there were.
#include "data/source_loaders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <numeric>
#include <thread>

#include "data/batch_reader.h"
#include "data/fill_ring.h"
#include "data/loader.h"
#include "token_files.h"

namespace ms::data {
namespace {

using Sources = std::vector<Owners>;

TEST(SourceShares, LightSourcesShareALoaderAndAHeavyOneHasSeveral) {
  struct Row {
    std::vector<double> loads;
    int loaders;
    Sources owners;
  };
  const std::vector<Row> rows{
      {{1, 1, 1, 1}, 1, {{0, 0}, {0, 0}, {0, 0}, {0, 0}}},
      {{1, 1, 1, 1}, 2, {{0, 0}, {0, 0}, {1, 1}, {1, 1}}},
      {{0, 0, 0, 0}, 2, {{0, 0}, {0, 0}, {1, 1}, {1, 1}}},  // none was read yet
      {{6, 1, 1}, 4, {{0, 2}, {3, 3}, {3, 3}}},
      {{1, 2, 1}, 2, {{0, 0}, {0, 1}, {1, 1}}},
      {{4}, 3, {{0, 2}}},
      {{0, 4, 0}, 2, {{0, 0}, {0, 1}, {1, 1}}},  // one that is not in the mixture now has an owner, too
  };
  for (const Row& row : rows) {
    EXPECT_EQ(divide_sources(row.loads, row.loaders), row.owners) << testing::PrintToString(row.loads);
    EXPECT_NEAR(fullness(row.loads, row.owners, row.loaders), 1, 1e-9);
  }
  // Loads change, and the first loader has 9 of 12.
  EXPECT_NEAR(fullness(std::vector<double>{8, 1, 1, 2}, rows[1].owners, 2), 1.5, 1e-9);
}

TEST(SourceShares, DealsABatchByWhatItsWindowsTake) {
  SourceCosts costs(3);
  EXPECT_EQ(costs.window_s(2), 1);
  const std::vector<Window> before{{0, 0}, {1, 0}, {0, 8}};
  costs.add(before, std::vector<double>{4, 1, 4});
  EXPECT_EQ(costs.window_s(0), 4);
  EXPECT_EQ(costs.window_s(2), 3);  // the mean
  EXPECT_EQ(costs.loads(), (std::vector<double>{8, 1, 0}));
  costs.add(before, std::vector<double>{1, 1, 1});
  EXPECT_LT(costs.window_s(0), 4);
  EXPECT_GT(costs.window_s(0), 1);

  // Both loaders own source 0; the second has two of its own.
  SourceCosts even(2);
  const std::vector<Window> windows{{1, 0}, {1, 8}, {0, 0}, {0, 8}, {0, 16}, {0, 24}};
  EXPECT_EQ(deal(windows, Sources{{0, 1}, {1, 1}}, even, 2),
            (std::vector<std::vector<std::size_t>>{{2, 3, 4}, {0, 1, 5}}));
}

// Adds a review's batches; returns the number after them.
int review(LoaderCount& count, const BatchTimes& batch) {
  for (int i = 1; i < LoaderCount::kReview; ++i) EXPECT_FALSE(count.add(batch));
  EXPECT_TRUE(count.add(batch));
  return count.now();
}

TEST(LoaderCount, FollowsWhatRanksWaitFor) {
  LoaderCount count(6);
  // No rank waits: one is enough, however much it reads.
  EXPECT_EQ(review(count, {.period_s = 1, .waited_s = 0.1, .read_s = 0.9}), 1);
  const auto late = [](double read_s) { return BatchTimes{.period_s = 1, .read_s = read_s, .is_late = true}; };
  EXPECT_EQ(review(count, late(1)), 2);
  EXPECT_EQ(review(count, late(2)), 4);
  EXPECT_EQ(review(count, late(4)), 6);
  EXPECT_EQ(review(count, late(6)), 6);
  // Five would be busy for 0.72 of the time: neither more nor fewer.
  for (int i = 0; i < 10; ++i) EXPECT_EQ(review(count, {.period_s = 1, .waited_s = 0.4, .read_s = 3.6}), 6);
  // The ranks compute longer now.
  EXPECT_EQ(review(count, {.period_s = 10, .waited_s = 9.4, .read_s = 3.6}), 5);
  for (int i = 0; i < 10; ++i) review(count, {.period_s = 10, .waited_s = 9.6, .read_s = 0.4 * count.now()});
  EXPECT_EQ(count.now(), 1);
  // A few that are late, as the first of a run are, make no difference.
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(count.add(late(1)));
  for (int i = 4; i < LoaderCount::kReview; ++i)
    EXPECT_FALSE(count.add({.period_s = 1, .waited_s = 0.5, .read_s = 0.5}));
  EXPECT_TRUE(count.add({.period_s = 1, .waited_s = 0.5, .read_s = 0.5}));
  EXPECT_EQ(count.now(), 1);
  count.limit(1);
  EXPECT_EQ(review(count, late(1)), 1);
}

class ReadBySeveral : public testing::Test {
 protected:
  ReadBySeveral() {
    for (int source = 0; source < 5; ++source) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(1000 + 700 * source));
      std::iota(tokens.begin(), tokens.end(), 5000 * source);
      write_tokens(dir_ / std::to_string(source), {tokens}, TokenType::i32);
    }
  }
  Loader open() const {
    DataConfig config{.train = {}, .valid = {}, .valid_fraction = 0};
    for (int source = 0; source < 5; ++source) {
      config.train.push_back(std::to_string(1 + source) + " " + dir_ / std::to_string(source));
    }
    return {config, {.seq = 16, .global_batch = 40}, 30'000, 1};
  }
  static std::vector<std::int32_t> tokens_of(const Loader& loader, int count, std::int64_t steps) {
    BatchRing ring({.parts = 2, .rows = 20, .seq = 16});
    SourceLoaders loaders(loader, LoaderCount(count, count));
    const LoaderTask task{.order = {.end = steps}, .dp_ranks = {0, 1}, .division = {.dp = 2}, .has_digests = true};
    const std::jthread filling([&] { fill_ring(loaders, ring, task); });
    BatchReader reader(ring, 0, 1, 60, [] {});
    std::vector<std::int32_t> all;
    for (std::int64_t step = 0; step < steps; ++step) {
      const Batch batch = reader.next({.step = step});
      EXPECT_EQ(batch.digest, loader.digest(step));
      all.resize(all.size() + static_cast<std::size_t>(batch.tokens.size()));
      batch.tokens.copy_to(all.data() + std::ssize(all) - batch.tokens.size());
    }
    reader.release();
    return all;
  }
  const TempDir dir_;
};

TEST_F(ReadBySeveral, BatchesAreTheSameWhateverTheirNumber) {
  const Loader loader = open();
  constexpr std::int64_t kSteps = 3 * LoaderCount::kReview;  // so that their number changes meanwhile
  const std::vector<std::int32_t> expected = tokens_of(loader, 1, kSteps);
  for (const int count : {2, 3, 16}) EXPECT_EQ(tokens_of(loader, count, kSteps), expected) << count;
}

TEST_F(ReadBySeveral, OneThatWaitsForItsStorageHoldsUpNoOther) {
  const Loader loader = open();
  SourceLoaders loaders(loader, LoaderCount(2, 2));
  constexpr std::size_t kWindows = 40;
  std::vector<Window> windows;
  for (std::size_t i = 0; i < kWindows; ++i) windows.push_back({static_cast<int>(i / 8), 0});
  std::vector<std::atomic<int>> read(kWindows);
  std::latch others(static_cast<std::ptrdiff_t>(kWindows - 1));
  loaders.begin(windows, [&](const Window& window, std::size_t index) {
    EXPECT_EQ(window, windows[index]);
    ++read[index];
    // The first one answers after all others: they include what else its loader was to read.
    index == 0 ? others.wait() : others.count_down();
  });
  loaders.finish();
  for (const std::atomic<int>& times : read) EXPECT_EQ(times, 1);
}

TEST_F(ReadBySeveral, ThrowsWhatAnyOfThemThrows) {
  const Loader loader = open();
  ASSERT_EQ(::truncate((dir_ / "4.bin").c_str(), 0), 0);  // of the last loader
  BatchRing ring({.parts = 1, .rows = 40, .seq = 16});
  SourceLoaders loaders(loader, LoaderCount(4, 4));
  const Error cut = thrown_by([&] { fill_ring(loaders, ring, {.order = {.end = 1}, .dp_ranks = {0}}); });
  EXPECT_EQ(cut.kind(), "file.cut");
  EXPECT_EQ(cut.blame(), Blame::storage);
  EXPECT_THAT(cut.message(), testing::HasSubstr("4.bin was cut while it was in use"));
}

TEST_F(ReadBySeveral, AnErrorIsToldWhileAnotherStillWaitsForItsStorage) {
  const Loader loader = open();
  std::latch answers(1), begun(3);
  SourceLoaders loaders(loader, LoaderCount(3, 3));
  loaders.begin({{0, 0}, {2, 0}, {4, 0}}, [&](const Window&, std::size_t index) {
    begun.arrive_and_wait();  // one each
    if (index == 1) throw Error("file.cut", Blame::storage, "gone");
    if (index == 2) answers.wait();
  });
  EXPECT_EQ(thrown_by([&] { loaders.finish(); }).message(), "gone");
  answers.count_down();
}

}  // namespace
}  // namespace ms::data
