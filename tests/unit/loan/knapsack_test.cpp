// Extra workers: the dynamic program against every combination, and equal shares.
#include "loan/knapsack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"

namespace ms::loan {
namespace {

using testing::ElementsAre;

std::vector<Group> random_groups(std::uint64_t seed, std::uint64_t count, std::uint64_t most_items, int unit) {
  std::vector<Group> groups(1 + uniform_below(seed, 1, 0, count));
  std::uint64_t drawn = 0;
  for (Group& group : groups) {
    const std::uint64_t items = uniform_below(seed, 2, drawn++, most_items + 1);
    for (std::uint64_t i = 0; i < items; ++i) {
      group.push_back({.weight = unit * static_cast<std::int64_t>(i + 1),
                       .value = 100 * uniform(seed, 3, drawn++) - 20});  // some are worth less than nothing
    }
  }
  return groups;
}

double best_value(std::span<const Group> groups, std::int64_t capacity) {
  if (groups.empty()) return 0;
  double best = best_value(groups.subspan(1), capacity);
  for (const Item& item : groups.front()) {
    if (item.weight > capacity) continue;
    best = std::max(best, item.value + best_value(groups.subspan(1), capacity - item.weight));
  }
  return best;
}

// The value of the items chosen, and whether they fit.
double value_of(std::span<const Group> groups, const Extras& extras, std::int64_t capacity) {
  double value = 0;
  EXPECT_EQ(extras.item.size(), groups.size());
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (extras.item[g] < 0) continue;
    const Item& item = groups[g].at(static_cast<std::size_t>(extras.item[g]));
    value += item.value;
    capacity -= item.weight;
  }
  EXPECT_GE(capacity, 0);
  return value;
}

TEST(Knapsack, TakesTheBestOfAllCombinations) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const int unit = seed % 3 == 0 ? 1 : 4;
    const std::vector<Group> groups = random_groups(seed, 6, 4, unit);
    const auto capacity = static_cast<std::int64_t>(uniform_below(seed, 4, 0, 60));
    const Extras extras = solve_knapsack(groups, capacity);
    const double best = best_value(groups, capacity);
    EXPECT_NEAR(extras.value, best, 1e-9) << "seed " << seed;
    EXPECT_NEAR(value_of(groups, extras, capacity), best, 1e-9) << "seed " << seed;
    EXPECT_LE(value_of(groups, equal_shares(groups, capacity), capacity), best + 1e-9) << "seed " << seed;
  }
}

TEST(Knapsack, IsNoGreedyChoice) {
  // By value per GPU the first item of group 0 would be taken, and then nothing fits.
  const std::vector<Group> groups = {
      {{.weight = 6, .value = 61}}, {{.weight = 5, .value = 50}}, {{.weight = 5, .value = 50}}};
  const Extras extras = solve_knapsack(groups, 10);
  EXPECT_THAT(extras.item, ElementsAre(-1, 0, 0));
  EXPECT_DOUBLE_EQ(extras.value, 100);
}

TEST(Knapsack, HasNothingToGive) {
  EXPECT_TRUE(solve_knapsack({}, 100).item.empty());
  const std::vector<Group> groups = {{}, {{.weight = 4, .value = 1}}, {{.weight = 1, .value = -1}}};
  for (const std::int64_t capacity : {-5, 0, 3}) {
    EXPECT_THAT(solve_knapsack(groups, capacity).item, ElementsAre(-1, -1, -1));
  }
  EXPECT_THAT(solve_knapsack(groups, 4).item, ElementsAre(-1, 0, -1));
}

TEST(Knapsack, SolvesTenThousandGpusAndAThousandJobs) {
  std::vector<Group> groups(1000);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::int64_t k = 1; k <= 8; ++k) {
      // Concave: each worker saves less than the one before it, so taking them by value is best, too.
      const double first = 1000 * uniform(7, 1, g);
      groups[g].push_back({.weight = k, .value = first * (1 - 1 / (1.0 + static_cast<double>(k)))});
    }
  }
  std::vector<double> steps;
  for (const Group& group : groups) {
    for (std::size_t k = 0; k < group.size(); ++k) {
      steps.push_back(group[k].value - (k == 0 ? 0 : group[k - 1].value));
    }
  }
  std::sort(steps.rbegin(), steps.rend());
  for (const std::int64_t capacity : {3000, 10'000}) {
    double best = 0;
    for (std::size_t i = 0; i < std::min(steps.size(), static_cast<std::size_t>(capacity)); ++i) best += steps[i];
    const Extras extras = solve_knapsack(groups, capacity);
    EXPECT_NEAR(extras.value, best, 1e-6);
    EXPECT_NEAR(value_of(groups, extras, capacity), best, 1e-6);
  }
}

TEST(EqualShares, GoesRoundByRound) {
  const Group group = {{.weight = 2, .value = 1}, {.weight = 4, .value = 2}, {.weight = 6, .value = 3}};
  const std::vector<Group> groups = {group, group, group};
  EXPECT_THAT(equal_shares(groups, 8).item, ElementsAre(1, 0, 0));
  EXPECT_THAT(equal_shares(groups, 1).item, ElementsAre(-1, -1, -1));
  EXPECT_THAT(equal_shares(groups, 99).item, ElementsAre(2, 2, 2));
}

}  // namespace
}  // namespace ms::loan
