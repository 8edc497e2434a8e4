// Changes of the level: none in healthy noise, the ones that were put in where they were put in, and whose they are.
#include "tracepp/findings/change_points.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "made_run.h"
#include "trace/format.h"
#include "tracepp/findings/level_shift.h"

namespace ms::tracepp {
namespace {

// Values around 1; `shift` more from `at` on.
std::vector<double> noisy(unsigned seed, std::size_t count, double sigma, std::size_t at, double shift) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(0, sigma);
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back((1 + noise(random)) * (i >= at ? 1 + shift : 1));
  return values;
}

TEST(Levels, FindNoneInNoise) {
  for (const std::size_t count : {20U, 50U, 300U}) {
    int alarms = 0, pauses = 0;
    for (unsigned seed = 0; seed < 1000; ++seed) {
      const std::vector<double> values = noisy(seed, count, 0.03, count, 0);
      const std::vector<Level> levels = find_levels(values);
      alarms += levels.size() > 1;
      pauses += !find_pauses(values, levels).empty();
    }
    EXPECT_LE(alarms, 1000 * kFalseAlarms) << count;
    EXPECT_LE(pauses, 1000 * kFalseAlarms) << count;
  }
}

TEST(Levels, FindNoneInHeavyTails) {
  int alarms = 0;
  for (unsigned seed = 0; seed < 1000; ++seed) {
    std::mt19937 random(seed);
    std::student_t_distribution<double> wild(1.5);
    std::vector<double> values;
    for (int i = 0; i < 100; ++i) values.push_back(std::exp(0.05 * wild(random)));
    alarms += find_levels(values).size() > 1;
  }
  EXPECT_LE(alarms, 1000 * kFalseAlarms);
}

TEST(Levels, FindAShiftOfFivePercent) {
  for (const std::size_t at : {8U, 15U, 25U, 40U}) {
    int found = 0;
    for (unsigned seed = 0; seed < 200; ++seed) {
      const std::vector<Level> levels = find_levels(noisy(seed, 50, 0.01, at, 0.05));
      if (levels.size() != 2) continue;
      const auto off = std::abs(static_cast<std::ptrdiff_t>(levels[1].begin) - static_cast<std::ptrdiff_t>(at));
      EXPECT_LE(off, 2) << seed;
      EXPECT_NEAR(levels[1].median / levels[0].median, 1.05, 0.02);
      ++found;
    }
    EXPECT_GE(found, 198) << at;
  }
}

TEST(Levels, FindAShiftAndItsEnd) {
  std::vector<double> values = noisy(3, 200, 0.01, 200, 0);
  for (std::size_t i = 90; i < 120; ++i) values[i] *= 1.08;
  const std::vector<Level> levels = find_levels(values);
  ASSERT_EQ(levels.size(), 3U);
  EXPECT_EQ(levels[1].begin, 90U);
  EXPECT_EQ(levels[1].end, 120U);
  EXPECT_EQ(levels[2].end, 200U);
}

TEST(Levels, IgnorePauses) {
  std::vector<double> values = noisy(5, 60, 0.01, 30, 0.05);
  values[10] = 3;
  values[45] = 1.5;
  const std::vector<Level> levels = find_levels(values);
  ASSERT_EQ(levels.size(), 2U);
  EXPECT_NEAR(static_cast<double>(levels[1].begin), 30, 1);
  EXPECT_EQ(find_pauses(values, levels), (std::vector<std::size_t>{10, 45}));
}

TEST(Levels, HandleDegenerateSeries) {
  EXPECT_TRUE(find_levels({}).empty());
  EXPECT_EQ(find_levels(std::vector<double>{1.0}).size(), 1U);
  EXPECT_EQ(find_levels(std::vector<double>(100, 2.0)).size(), 1U) << "all equal";
  EXPECT_EQ(find_levels(std::vector<double>(100, 0.0)).size(), 1U);
  EXPECT_EQ(most_unlikely_split({}), 0);
  // Sure, but too small to be told: 0.5 % with hardly any noise.
  EXPECT_EQ(find_levels(noisy(1, 100, 0.0001, 50, 0.005)).size(), 1U);
}

TEST(Levels, TwentyValuesAreEnough) {
  std::vector<double> values(kShortestSeries, 1.0);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += 0.001 * static_cast<double>(i % 7);
  for (std::size_t i = 10; i < values.size(); ++i) values[i] += 0.1;
  EXPECT_EQ(find_levels(values).size(), 2U);
}

PipelineSpec noisy_pipeline(std::mt19937& random, int steps) {
  PipelineSpec spec;
  spec.mesh = {.dp = 4, .pp = 2, .tp = 1};
  spec.steps = steps;
  spec.slowness = [&random](int, int) { return std::normal_distribution<double>(0, 0.01)(random); };
  return spec;
}

TEST(ChangePoints, NameTheRankThatBecameSlow) {
  std::mt19937 random(1);
  PipelineSpec spec = noisy_pipeline(random, 40);
  spec.slowness = [noise = spec.slowness](int rank, int step) {
    return noise(rank, step) + (rank == 5 && step >= 22 ? 0.1 : 0);
  };
  const RunTrace run = play_pipeline(spec);
  const ChangePoints found = find_change_points(run, break_down(run));
  EXPECT_TRUE(found.long_enough);
  ASSERT_EQ(found.points.size(), 1U);
  EXPECT_NEAR(found.points[0].step, 22, 1);
  EXPECT_GT(found.points[0].after_s, 1.03 * found.points[0].before_s);
  ASSERT_EQ(found.points[0].ranks.size(), 1U);
  EXPECT_EQ(found.points[0].ranks[0].rank, 5U);
  EXPECT_EQ(found.points[0].ranks[0].change.part, StepPart::busy);
  ASSERT_EQ(found.rank_shifts.size(), 1U);
  EXPECT_EQ(found.rank_shifts[0].rank, 5U);
  EXPECT_NEAR(found.rank_shifts[0].step, 22, 1);
  EXPECT_NEAR(found.rank_shifts[0].after - found.rank_shifts[0].before, 0.1, 0.03);
}

TEST(ChangePoints, NameThePartThatChangedOnAllRanks) {
  std::mt19937 random(2);
  PipelineSpec spec = noisy_pipeline(random, 40);
  spec.slowness = [noise = spec.slowness](int rank, int step) { return noise(rank, step) + (step >= 20 ? 0.1 : 0); };
  const RunTrace run = play_pipeline(spec);
  const ChangePoints found = find_change_points(run, break_down(run));
  ASSERT_EQ(found.points.size(), 1U);
  EXPECT_TRUE(found.points[0].ranks.empty());
  EXPECT_EQ(found.points[0].usual.part, StepPart::busy);
  EXPECT_TRUE(found.rank_shifts.empty()) << "none against the others";
}

TEST(ChangePoints, AStallOfOneStepIsAPause) {
  std::mt19937 random(3);
  PipelineSpec spec = noisy_pipeline(random, 30);
  spec.data_wait_ns = [](int rank, int step) { return rank == 6 && step == 12 ? 20'000'000 : 0; };
  const RunTrace run = play_pipeline(spec);
  const ChangePoints found = find_change_points(run, break_down(run));
  EXPECT_TRUE(found.points.empty());
  ASSERT_EQ(found.pauses.size(), 1U);
  EXPECT_EQ(found.pauses[0].step, 12);
  EXPECT_TRUE(found.pauses[0].has_rank);
  EXPECT_EQ(found.pauses[0].at.rank, 6U);
  EXPECT_EQ(found.pauses[0].at.change.part, StepPart::data_wait);
}

TEST(ChangePoints, HealthyRunsHaveNone) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const RunTrace run = play_pipeline(noisy_pipeline(random, 40));
    const ChangePoints found = find_change_points(run, break_down(run));
    EXPECT_EQ(found.points.size() + found.pauses.size() + found.rank_shifts.size(), 0U) << seed;
  }
  std::mt19937 random(1);
  const RunTrace few = play_pipeline(noisy_pipeline(random, 5));
  EXPECT_FALSE(find_change_points(few, break_down(few)).long_enough);
}

// Of steps whose events are gone.
TEST(ChangePoints, WorkOnSumsAlone) {
  MadeRun made({.dp = 3});
  for (RankTrace& rank : made.run.ranks) {
    std::int64_t end_ns = 0;
    for (int step = 0; step < 60; ++step) {
      StepSum sum;
      sum.step = step;
      sum.begin_ns = end_ns - 1000;
      const double jitter = 1 + 0.001 * (step * 7 % 11);
      const double save_s = rank.rank == 1 && step >= 30 ? 0.05 : 0;
      sum.seconds.assign(trace::format::kSums, 0);
      sum.seconds[static_cast<std::size_t>(trace::format::SumOf::busy)] = static_cast<float>(0.2 * jitter);
      sum.seconds[static_cast<std::size_t>(trace::format::SumOf::save)] = static_cast<float>(save_s);
      end_ns += static_cast<std::int64_t>(1e9 * (0.2 * jitter + (step >= 30 ? 0.05 : 0)));
      sum.end_ns = end_ns;
      if (step == 59) sum.seconds.resize(3);  // of a version that knew fewer
      rank.sums.push_back(sum);
    }
  }
  const ChangePoints found = find_change_points(made.run, break_down(made.run));
  ASSERT_EQ(found.points.size(), 1U);
  EXPECT_EQ(found.points[0].step, 30);
  ASSERT_EQ(found.points[0].ranks.size(), 1U);
  EXPECT_EQ(found.points[0].ranks[0].rank, 1U);
  EXPECT_EQ(found.points[0].ranks[0].change.part, StepPart::save);
}

}  // namespace
}  // namespace ms::tracepp
