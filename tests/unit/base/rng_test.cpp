#include "base/rng.h"

#include <gtest/gtest.h>

#include <set>

namespace ms {
namespace {

TEST(Rng, PhiloxKnownAnswers) {
  // The vectors that the authors of Philox publish with their reference implementation.
  const struct {
    PhiloxBlock counter;
    std::array<std::uint32_t, 2> key;
    PhiloxBlock expected;
  } rows[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const auto& row : rows) EXPECT_EQ(philox4x32(row.counter, row.key), row.expected);
}

TEST(Rng, IsUsableAtCompileTime) {
  static_assert(random_u64(1, 2, 3) == random_u64(1, 2, 3));
  static_assert(rng_key("a") != rng_key("b"));
  static_assert(uniform_below(1, 2, 3, 1) == 0);
}

TEST(Rng, NumbersComeFromTheirPlaceInTheSequence) {
  constexpr std::uint64_t kSeed = 42;
  constexpr std::uint64_t kKey = rng_key("test");
  std::set<std::uint64_t> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    seen.insert(random_u64(kSeed, kKey, i));
    EXPECT_EQ(normal(kSeed, kKey, i), normal_block(kSeed, kKey, i / 4)[i % 4]);
  }
  EXPECT_EQ(seen.size(), 1000);
  EXPECT_NE(random_u64(kSeed, kKey, 0), random_u64(kSeed + 1, kKey, 0));
  EXPECT_NE(random_u64(kSeed, kKey, 0), random_u64(kSeed, kKey + 1, 0));
  EXPECT_NE(random_u64(kSeed, kKey, 0), random_u64(kSeed, kKey, std::uint64_t{1} << 40)) << "high bits count";
  EXPECT_NE(random_u64(kSeed << 32, kKey, 0), random_u64(0, kKey, 0));
}

// Bounds are five standard errors: for a right generator a fixed seed passes or fails for ever, and passes.
constexpr std::uint64_t kDraws = 400'000;

TEST(Rng, UniformMoments) {
  double sum = 0;
  double sum2 = 0;
  std::array<std::uint64_t, 10> histogram{};
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    const double x = uniform(7, 11, i);
    ASSERT_GE(x, 0.0);
    ASSERT_LT(x, 1.0);
    sum += x;
    sum2 += x * x;
    ++histogram[uniform_below(7, 12, i, histogram.size())];
  }
  const double n = static_cast<double>(kDraws);
  EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(sum2 / n, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
  for (const std::uint64_t count : histogram) EXPECT_NEAR(static_cast<double>(count), n / 10, 5 * std::sqrt(n * 0.09));
}

TEST(Rng, NormalMoments) {
  std::array<double, 5> moments{};
  double neighbours = 0;
  float largest = 0;
  for (std::uint64_t block = 0; block < kDraws / 4; ++block) {
    const std::array<float, 4> x = normal_block(3, rng_key("init"), block);
    for (std::size_t i = 0; i < 4; ++i) {
      ASSERT_TRUE(std::isfinite(x[i]));
      largest = std::max(largest, std::abs(x[i]));
      double power = 1;
      for (double& moment : moments) {
        moment += power;
        power *= static_cast<double>(x[i]);
      }
      neighbours += static_cast<double>(x[i] * x[(i + 1) % 4]);
    }
  }
  const double n = moments[0];
  EXPECT_EQ(n, static_cast<double>(kDraws));
  EXPECT_NEAR(moments[1] / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(moments[2] / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(moments[3] / n, 0, 5 * std::sqrt(15 / n));
  EXPECT_NEAR(moments[4] / n, 3, 5 * std::sqrt(96 / n));
  EXPECT_NEAR(neighbours / n, 0, 5 / std::sqrt(n));
  EXPECT_GT(largest, 4.0F) << "there are tails";
}

}  // namespace
}  // namespace ms
