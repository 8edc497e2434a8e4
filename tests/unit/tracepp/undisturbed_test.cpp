// Slow ranks among ranks that take cores away from each other: most of their times say nothing.
#include "tracepp/findings/undisturbed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <random>

namespace ms::tracepp {
namespace {

constexpr double kLeast = 0.025;

struct Shared {
  mesh::Mesh mesh{.dp = 2, .pp = 2, .tp = 2};
  std::size_t steps = 40, microbatches = 8;
  double disturbed = 0.7;  // of computations
  unsigned seed = 1;
  // How many times as long a computation takes that nothing disturbs; the share of them that is disturbed.
  std::function<double(int place, std::size_t step)> work = [](int, std::size_t) { return 1.0; };
  std::function<double(int place, std::size_t step)> how_often = [](int, std::size_t) { return 1.0; };
};

RankTable table_of(const Shared& run) {
  RankTable table(run.mesh, run.steps);
  table.set_works(std::vector<std::vector<std::size_t>>(static_cast<std::size_t>(run.mesh.pp),
                                                        {run.microbatches, run.microbatches}));
  std::mt19937 random(run.seed);
  const auto uniform = [&] { return static_cast<double>(random()) / 4294967296.0; };
  for (int place = 0; place < run.mesh.size(); ++place) {
    table.ranks[static_cast<std::size_t>(place)] = place;
    for (std::size_t step = 0; step < run.steps; ++step) {
      std::vector<float> seconds;
      for (const double length : {1e-3, 2e-3}) {
        for (std::size_t i = 0; i < run.microbatches; ++i) {
          double value = length * run.work(place, step) * (1 + 0.03 * uniform());
          // Another one computes first, for a slice of time or two.
          if (uniform() < run.disturbed * run.how_often(place, step)) value += 4e-3 * (uniform() < 0.3 ? 2 : 1);
          seconds.push_back(static_cast<float>(value));
        }
      }
      table.set_computed(place, step, seconds);
    }
  }
  return table;
}

std::vector<Outlier> find(const Shared& run) { return find_undisturbed_outliers(table_of(run), kLeast); }

TEST(Undisturbed, FindsFivePercentUnderDisturbance) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    for (const double disturbed : {0.3, 0.7}) {
      Shared run{.disturbed = disturbed, .seed = seed};
      const int slow = static_cast<int>(seed) % 8;
      run.work = [&](int place, std::size_t step) { return place == slow && step >= 3 ? 1.05 : 1.0; };
      const std::vector<Outlier> found = find(run);
      ASSERT_EQ(found.size(), 1U) << seed;
      EXPECT_EQ(found[0].unit, slow);
      EXPECT_NEAR(found[0].excess, 0.05, 0.01);
      EXPECT_LE(found[0].first, 10U);
      EXPECT_EQ(found[0].last, 39U);
      EXPECT_GE(found[0].excess, found[0].threshold);
      EXPECT_TRUE(found[0].is_size_known);
    }
  }
}

// Where nearly all computations share a core, their shortest tenth does, too, as on a machine with much else to do.
TEST(Undisturbed, KnowsWhenTheSizeIsUnknown) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    Shared run{.disturbed = 0, .seed = seed};
    std::mt19937 random(seed);
    run.work = [&](int place, std::size_t) {
      const double others = random() % 50 == 0 ? 0 : 1 + static_cast<double>(random() % 1024) / 256;
      return (place == 5 ? 2.0 : 1.0) * (1 + others);
    };
    const std::vector<Outlier> found = find(run);
    ASSERT_EQ(found.size(), 1U) << seed;
    EXPECT_EQ(found[0].unit, 5);
    EXPECT_FALSE(found[0].is_size_known);
  }
}

TEST(Undisturbed, IgnoresDisturbedRanks) {
  for (unsigned seed = 1; seed <= 40; ++seed) {
    for (const double disturbed : {0.1, 0.5, 0.8, 0.95}) {
      Shared run{.disturbed = disturbed, .seed = seed};
      EXPECT_TRUE(find(run).empty()) << seed << " " << disturbed;
      // Some ranks have to wait more often, and in some steps all of them.
      run.how_often = [&](int place, std::size_t step) {
        if (step >= 10 && step < 15) return 1 / disturbed;
        return 0.7 + 0.6 * static_cast<double>((place * 5 + static_cast<int>(seed)) % 8) / 8;
      };
      EXPECT_TRUE(find(run).empty()) << seed << " " << disturbed;
    }
  }
}

TEST(Undisturbed, IgnoresDisturbedStepsThatOtherRanksHaveToo) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    Shared run{.disturbed = 0.5, .seed = seed};
    std::mt19937 random(seed);
    std::vector<bool> is_bad(8 * run.steps);
    for (std::size_t i = 0; i < is_bad.size(); ++i) is_bad[i] = random() % 3 == 0;
    const auto bad = [&](int place, std::size_t step) {
      return is_bad[static_cast<std::size_t>(place) * run.steps + step] ? 2 : 0.5;
    };
    run.how_often = [&](int place, std::size_t step) {
      return place == 2 && step >= 5 && step < 9 ? 2 : bad(place, step);
    };
    EXPECT_TRUE(find(run).empty()) << seed;
    // So many do: who has none for most of the run is slow, whatever the cause.
    run.how_often = [&](int place, std::size_t step) {
      return place == 2 && step >= 5 && step < 35 ? 2 : bad(place, step);
    };
    const std::vector<Outlier> found = find(run);
    ASSERT_EQ(found.size(), 1U) << seed;
    EXPECT_EQ(found[0].unit, 2);
  }
}

TEST(Undisturbed, FindsTwoSlowRanks) {
  Shared run{.mesh = {.dp = 4, .pp = 2, .tp = 2}};
  run.work = [](int place, std::size_t) { return place == 1 ? 1.2 : place == 9 ? 1.06 : 1.0; };
  const std::vector<Outlier> found = find(run);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].unit, 1);  // the worst first
  EXPECT_EQ(found[1].unit, 9);
}

TEST(Undisturbed, ComparesARankWithoutPeersWithItsPast) {
  Shared run{.mesh = {.dp = 1, .pp = 8, .tp = 1}};
  run.work = [](int place, std::size_t step) { return place == 5 && step >= 20 ? 1.1 : 1.0; };
  const std::vector<Outlier> found = find(run);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].unit, 5);
  EXPECT_NEAR(static_cast<double>(found[0].first), 20, 2);
  // Where all are slower from then on it is none of them.
  run.work = [](int, std::size_t step) { return step >= 20 ? 1.1 : 1.0; };
  EXPECT_TRUE(find(run).empty());
}

TEST(Undisturbed, FindsNothingInTooFewTimes) {
  const auto slow = [](int place, std::size_t) { return place == 0 ? 1.5 : 1.0; };
  Shared few{.mesh = {.dp = 3, .pp = 1, .tp = 1}};
  few.work = slow;
  EXPECT_TRUE(find(few).empty());
  Shared shortest{.steps = 1, .microbatches = 1};
  shortest.work = slow;
  EXPECT_TRUE(find(shortest).empty());
  EXPECT_TRUE(find_undisturbed_outliers(RankTable({.dp = 4, .pp = 2, .tp = 1}, 10), kLeast).empty());
  EXPECT_TRUE(find_undisturbed_outliers(RankTable(), kLeast).empty());
  // Ranks that were not traced, times that are none.
  Shared run;
  run.work = [](int place, std::size_t) {
    return place == 7 ? std::numeric_limits<double>::quiet_NaN() : place == 6 ? 0 : place == 1 ? 1.2 : 1.0;
  };
  run.how_often = [](int place, std::size_t) { return place == 6 ? 0.0 : 1.0; };
  const std::vector<Outlier> found = find(run);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].unit, 1);
}

TEST(RankTable, ListsARanksComputations) {
  RankTable table({.dp = 1, .pp = 2, .tp = 1}, 2);
  table.set_works({{3, 1}, {2}});
  EXPECT_EQ(table.computations, 4U);
  table.set_computed(0, 1, {1, 9, 2, 5});
  table.set_computed(1, 0, {4, 8});
  EXPECT_EQ(table.compute[table.at(0, 1)], 17);
  EXPECT_EQ(table.pace[table.at(0, 1)], 3 * 2 + 5);
  EXPECT_EQ(table.pace[table.at(1, 0)], 12);
  EXPECT_THAT(std::vector<float>(table.each.begin() + 4, table.each.begin() + 8), testing::ElementsAre(1, 9, 2, 5));
  EXPECT_TRUE(std::isnan(table.each[8 + 2]));  // a stage with less
}

}  // namespace
}  // namespace ms::tracepp
