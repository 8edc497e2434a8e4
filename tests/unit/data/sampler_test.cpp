// The pure part: permutations, blends, windows and the sampler.
#include "data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "data/permutation.h"

namespace ms::data {
namespace {

TEST(Permutation, IsABijectionOfEverySmallSize) {
  for (std::uint64_t n = 1; n <= 300; ++n) {
    const Permutation permutation(n, 7, 1, 0);
    std::set<std::uint64_t> images;
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t image = permutation(i);
      ASSERT_LT(image, n);
      images.insert(image);
    }
    ASSERT_EQ(images.size(), n);
  }
}

TEST(Permutation, IsABijectionOfALargeSize) {
  constexpr std::uint64_t kSize = 100'003;
  const Permutation permutation(kSize, 42, 1, 3);
  std::vector<bool> seen(kSize, false);
  for (std::uint64_t i = 0; i < kSize; ++i) seen[permutation(i)] = true;
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), static_cast<std::ptrdiff_t>(kSize));
}

TEST(Permutation, DependsOnSeedKeyAndNumber) {
  const auto images = [](const Permutation& permutation) {
    std::vector<std::uint64_t> values;
    for (std::uint64_t i = 0; i < 1000; ++i) values.push_back(permutation(i));
    return values;
  };
  const auto base = images(Permutation(1000, 1, 1, 0));
  EXPECT_EQ(base, images(Permutation(1000, 1, 1, 0)));
  EXPECT_NE(base, images(Permutation(1000, 2, 1, 0)));
  EXPECT_NE(base, images(Permutation(1000, 1, 2, 0)));
  EXPECT_NE(base, images(Permutation(1000, 1, 1, 1)));
}

TEST(Permutation, LooksRandom) {
  // Against the expectations for a random permutation: mean distance n/3, one fixed point, one neighbour kept. The
  // standard deviations are about 0.0024 n (of the mean of 10,000 distances), 1 and 1.
  constexpr std::uint64_t kSize = 10'000;
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const Permutation permutation(kSize, seed, 9, 0);
    double distance = 0;
    int fixed = 0;
    int neighbours = 0;
    std::uint64_t previous = kSize;
    for (std::uint64_t i = 0; i < kSize; ++i) {
      const std::uint64_t image = permutation(i);
      distance += std::abs(static_cast<double>(image) - static_cast<double>(i));
      fixed += image == i ? 1 : 0;
      neighbours += image == previous + 1 ? 1 : 0;
      previous = image;
    }
    EXPECT_NEAR(distance / kSize / kSize, 1.0 / 3, 0.015) << "seed " << seed;
    EXPECT_LE(fixed, 8) << "seed " << seed;
    EXPECT_LE(neighbours, 8) << "seed " << seed;
  }
}

TEST(Permutation, FirstImageIsUniform) {
  std::map<std::uint64_t, int> counts;
  constexpr int kDraws = 12'000;
  for (std::uint64_t epoch = 0; epoch < kDraws; ++epoch) ++counts[Permutation(12, 5, 1, epoch)(0)];
  for (std::uint64_t i = 0; i < 12; ++i) EXPECT_NEAR(counts[i], kDraws / 12, 160) << i;  // 5 standard deviations
}

TEST(Permutation, TakesSizesBeyondThirtyTwoBits) {
  constexpr std::uint64_t kSize = (std::uint64_t{1} << 40) + 12'345;
  const Permutation permutation(kSize, 1, 1, 0);
  std::set<std::uint64_t> images;
  for (std::uint64_t i = 0; i < 1000; ++i) images.insert(permutation(kSize - 1 - i));
  EXPECT_EQ(images.size(), 1000U);
  EXPECT_LT(*images.rbegin(), kSize);
  EXPECT_GT(*images.rbegin(), kSize / 2);
}

struct BlendRow {
  std::vector<double> weights;
  std::vector<std::int64_t> shares;
};
class BlendShares : public testing::TestWithParam<BlendRow> {};

TEST_P(BlendShares, AreExactOverEveryPeriodAndNeverFarOff) {
  const BlendRow& row = GetParam();
  const Blend blend(row.weights);
  const int sources = static_cast<int>(row.shares.size());
  std::int64_t period = 0;
  for (int i = 0; i < sources; ++i) {
    EXPECT_EQ(blend.share(i), row.shares[static_cast<std::size_t>(i)]);
    period += blend.share(i);
  }
  ASSERT_EQ(blend.period(), period);
  std::vector<std::int64_t> drawn(row.shares.size(), 0);
  for (std::int64_t g = 0; g < 3 * period; ++g) {
    const Blend::Draw draw = blend.draw(g);
    auto& count = drawn[static_cast<std::size_t>(draw.source)];
    ASSERT_EQ(draw.ordinal, count) << "sample " << g;  // ordinals of a source count up without gaps
    ++count;
    for (int i = 0; i < sources; ++i) {
      const double ideal = static_cast<double>((g + 1) * blend.share(i)) / static_cast<double>(period);
      ASSERT_LT(static_cast<double>(drawn[static_cast<std::size_t>(i)]), ideal + 1);
      ASSERT_GT(static_cast<double>(drawn[static_cast<std::size_t>(i)]), ideal - sources);
    }
  }
  for (int i = 0; i < sources; ++i) EXPECT_EQ(drawn[static_cast<std::size_t>(i)], 3 * blend.share(i));
}

INSTANTIATE_TEST_SUITE_P(Rows, BlendShares,
                         testing::Values(BlendRow{{1}, {1}}, BlendRow{{0.7, 0.3}, {7, 3}}, BlendRow{{2, 1}, {2, 1}},
                                         BlendRow{{0.5, 0.25, 0.25}, {2, 1, 1}}, BlendRow{{10, 10, 10}, {1, 1, 1}},
                                         BlendRow{{0.333, 0.667}, {333, 667}}, BlendRow{{5, 1, 1, 1}, {5, 1, 1, 1}},
                                         // too fine for an exact period: rounded down to 1/65536
                                         BlendRow{{0.123457, 0.876543}, {8090, 57445}}));

TEST(Blend, NeverDrawsASourceOfWeightZero) {
  const Blend with(std::vector<double>{0, 0.7, 0, 0.3}), without(std::vector<double>{0.7, 0.3});
  ASSERT_EQ(with.period(), 10);
  for (std::int64_t g = 0; g < 25; ++g) {
    EXPECT_EQ(with.draw(g).source, 1 + 2 * without.draw(g).source) << g;
    EXPECT_EQ(with.draw(g).ordinal, without.draw(g).ordinal) << g;
  }
  EXPECT_THAT(with.draws(25), testing::ElementsAre(0, 18, 0, 7));
}

// The order of constant weights is stored nowhere, and runs resume in it: it may never change.
TEST(Blend, KeepsItsOrder) {
  const Blend blend(std::vector<double>{0.5, 0.3, 0.2});
  std::vector<int> sources;
  for (std::int64_t g = 0; g < 10; ++g) sources.push_back(blend.draw(g).source);
  EXPECT_THAT(sources, testing::ElementsAre(0, 1, 2, 0, 0, 1, 0, 2, 1, 0));
}

TEST(Blend, RefusesWeightsThatMakeNoSense) {
  for (const std::vector<double>& weights : {std::vector<double>{},
                                             {0.0},
                                             {1, -1},
                                             {std::nan("")},
                                             {std::numeric_limits<double>::infinity()},
                                             {1e-9},
                                             {0.0, 0.0},
                                             {1e6, 1}}) {
    EXPECT_THROW(Blend{weights}, Error) << testing::PrintToString(weights);
  }
}

TEST(Windows, OverlapByOneTokenAndDropThePartialLast) {
  struct Row {
    std::int64_t tokens;
    std::int64_t windows;
  };
  for (const Row row : {Row{0, 0}, Row{1, 0}, Row{4, 0}, Row{5, 1}, Row{8, 1}, Row{9, 2}, Row{401, 100}}) {
    EXPECT_EQ(num_windows({0, 100, 100 + row.tokens}, 4), row.windows) << row.tokens;
  }
  const WindowPool pool({{3, 100, 110}, {4, 0, 3}, {5, 7, 16}}, 4);  // 2, 0 and 2 windows
  ASSERT_EQ(pool.size(), 4);
  EXPECT_EQ(pool[0], (Window{3, 100}));
  EXPECT_EQ(pool[1], (Window{3, 104}));
  EXPECT_EQ(pool[2], (Window{5, 7}));
  EXPECT_EQ(pool[3], (Window{5, 11}));
}

TEST(Windows, SpreadIsEvenAndDistinct) {
  const WindowPool pool({{0, 0, 1001}}, 10);  // 100 windows
  std::vector<std::int64_t> begins;
  for (std::int64_t i = 0; i < 4; ++i) begins.push_back(pool.spread(i, 4).begin);
  EXPECT_THAT(begins, testing::ElementsAre(0, 250, 500, 750));
  for (const std::int64_t count : {1, 7, 99, 100}) {
    std::set<std::int64_t> distinct;
    for (std::int64_t i = 0; i < count; ++i) distinct.insert(pool.spread(i, count).begin);
    EXPECT_EQ(static_cast<std::int64_t>(distinct.size()), count);
  }
  EXPECT_EQ(pool.spread(150, 300).begin, 500);  // more than there are: repeated evenly
}

Mixture constant(const std::vector<double>& weights) {
  const WeightStage stage{.step = 0, .weights = weights};
  return {{&stage, 1}, {.seq = 10, .global_batch = 1}};
}

std::vector<Window> samples(const Sampler& sampler, std::int64_t begin, std::int64_t end) {
  std::vector<Window> windows;
  for (std::int64_t g = begin; g < end; ++g) windows.push_back(sampler.sample(g));
  return windows;
}

Sampler one_pool(std::uint64_t seed) {
  return Sampler({WindowPool({{0, 0, 401}, {1, 50, 551}}, 10)}, constant({1}), seed);  // 40 + 50 windows
}

TEST(Sampler, VisitsEveryWindowOncePerEpochInAnotherOrder) {
  const Sampler sampler = one_pool(3);
  std::vector<std::vector<Window>> epochs;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    const std::vector<Window> windows = samples(sampler, epoch * 90, (epoch + 1) * 90);
    std::set<std::pair<int, std::int64_t>> distinct;
    for (const Window& window : windows) {
      distinct.insert({window.file, window.begin});
      const std::int64_t begin = window.file == 0 ? 0 : 50;
      const std::int64_t end = window.file == 0 ? 401 : 551;
      EXPECT_EQ((window.begin - begin) % 10, 0);
      EXPECT_GE(window.begin, begin);
      EXPECT_LE(window.begin + 11, end);
    }
    EXPECT_EQ(distinct.size(), 90U) << "epoch " << epoch;
    for (const auto& earlier : epochs) EXPECT_NE(windows, earlier);
    epochs.push_back(windows);
  }
}

TEST(Sampler, IsAPureFunctionOfSeedAndSample) {
  EXPECT_EQ(samples(one_pool(3), 500, 600), samples(one_pool(3), 500, 600));
  EXPECT_NE(samples(one_pool(3), 500, 600), samples(one_pool(4), 500, 600));
  // O(1) anywhere: a step far away costs no more than the first.
  EXPECT_EQ(one_pool(3).sample(1'000'000'000'000), one_pool(3).sample(1'000'000'000'000));
}

TEST(Sampler, BlendsPoolsThatKeepTheirOwnEpochs) {
  const Sampler sampler({WindowPool({{0, 0, 31}}, 10), WindowPool({{1, 0, 31}}, 10)}, constant({3, 1}),
                        3);  // 3 windows each
  std::map<int, std::vector<std::int64_t>> begins;
  for (const Window& window : samples(sampler, 0, 12)) begins[window.file].push_back(window.begin);
  ASSERT_EQ(begins[0].size(), 9U);
  ASSERT_EQ(begins[1].size(), 3U);
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    const auto at = begins[0].begin() + static_cast<std::ptrdiff_t>(3 * epoch);
    EXPECT_THAT(std::vector<std::int64_t>(at, at + 3), testing::UnorderedElementsAre(0, 10, 20));
  }
  EXPECT_THAT(begins[1], testing::UnorderedElementsAre(0, 10, 20));
}

}  // namespace
}  // namespace ms::data
