// Schedules run in virtual time agree with the closed formulas of cost/pipeline.h, and with the figures quoted for
// interleaved 1F1B.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "cost/pipeline.h"
#include "sched/checker.h"
#include "sched/generate.h"

namespace ms::sched {
namespace {

constexpr Times kTimes[] = {{1.0, 2.0}, {1.0, 1.0}, {3.0, 1.0}};

void expect_time(const Schedule& schedule, const Times& times) {
  const auto& [p, v, m, training] = schedule.shape;
  const Report report = check(schedule, times);
  ASSERT_TRUE(report.ok) << report.problem;
  const double makespan = cost::pipeline_makespan(p, m, v, times.forward, times.backward);
  EXPECT_NEAR(report.makespan, makespan, 1e-9 * makespan) << "p " << p << " m " << m << " v " << v;
  EXPECT_NEAR(report.bubble, cost::bubble_of_ideal(p, m, v), 1e-9) << "p " << p << " m " << m << " v " << v;
}

// The first forward of the steady phase comes before the first backward too, so a rank whose warm-up is everything
// cannot be told from one whose warm-up is one less.
int seen_warm_up(int formula, int forwards) { return std::min(formula, forwards - 1); }

TEST(Formulas, GpipeAndOneForwardOneBackward) {
  for (const bool early : {false, true}) {
    for (const int p : {1, 2, 3, 4, 5, 8}) {
      for (const int m : {1, 2, 3, 4, 7, 8, 16}) {
        const Schedule all = gpipe(p, m, {.early_receives = early});
        const Schedule alternating = one_f_one_b(p, m, {.early_receives = early});
        for (const Times& times : kTimes) {
          expect_time(all, times);
          expect_time(alternating, times);
        }
        const Report gpipe_report = check(all);
        const Report report = check(alternating);
        for (int r = 0; r < p; ++r) {
          const auto rank = static_cast<std::size_t>(r);
          EXPECT_EQ(gpipe_report.ranks[rank].peak_chunks, cost::peak_chunks_gpipe(m));
          EXPECT_EQ(report.ranks[rank].peak_chunks, cost::peak_chunks_1f1b(p, m, r));
          EXPECT_EQ(report.ranks[rank].peak_stages, cost::peak_chunks_1f1b(p, m, r));
          EXPECT_EQ(report.ranks[rank].warm_up, seen_warm_up(cost::warm_up_1f1b(p, m, r), m));
        }
      }
    }
  }
}

TEST(Formulas, Interleaved) {
  for (const bool early : {false, true}) {
    for (const int p : {2, 3, 4, 8}) {
      for (const int groups : {1, 2, 4}) {
        for (const int v : {2, 3, 6}) {
          const int m = p * groups;
          const Schedule schedule = interleaved(p, v, m, {}, {.early_receives = early});
          for (const Times& times : kTimes) expect_time(schedule, times);
          const Report report = check(schedule);
          for (int r = 0; r < p; ++r) {
            const RankReport& rank = report.ranks[static_cast<std::size_t>(r)];
            EXPECT_EQ(rank.warm_up, seen_warm_up(cost::warm_up_interleaved(p, m, v, p, r), m * v));
            EXPECT_EQ(rank.peak_chunks, cost::peak_chunks_interleaved(p, m, v, p, r));
          }
        }
      }
    }
  }
}

TEST(Formulas, WarmUpAndPeakFollowTheGroup) {
  for (const auto& [p, v, m, group] : {std::array{2, 2, 5, 3}, {4, 2, 16, 8}, {4, 3, 14, 5}}) {
    const Report report = check(interleaved(p, v, m, group));
    ASSERT_TRUE(report.ok) << report.problem;
    for (int r = 0; r < p; ++r) {
      const RankReport& rank = report.ranks[static_cast<std::size_t>(r)];
      EXPECT_EQ(rank.warm_up, seen_warm_up(cost::warm_up_interleaved(p, m, v, group, r), m * v));
      EXPECT_EQ(rank.peak_chunks, cost::peak_chunks_interleaved(p, m, v, group, r));
    }
  }
}

TEST(Formulas, QuotedFigures) {
  struct Case {
    int p, m, v;
    double makespan, bubble;
    std::vector<int> warm_up;
    std::vector<double> peak_stages;
  };
  const Case cases[] = {
      {4, 8, 2, 28.5, 0.1875, {10, 8, 6, 4}, {5.5, 4.5, 3.5, 2.5}},
      {8, 32, 2, 106.5, 0.109375, {22, 20, 18, 16, 14, 12, 10, 8}, {}},
      {8, 24, 6, 75.5, 7.0 / 144, {54, 52, 50, 48, 46, 44, 42, 40}, {}},
  };
  for (const Case& c : cases) {
    const Report report = check(interleaved(c.p, c.v, c.m), {.forward = 1.0, .backward = 2.0});
    ASSERT_TRUE(report.ok) << report.problem;
    EXPECT_NEAR(report.makespan, c.makespan, 1e-9);
    EXPECT_NEAR(report.bubble, c.bubble, 1e-9);
    for (std::size_t r = 0; r < report.ranks.size(); ++r) {
      EXPECT_EQ(report.ranks[r].warm_up, c.warm_up[r]);
      if (!c.peak_stages.empty()) { EXPECT_EQ(report.ranks[r].peak_stages, c.peak_stages[r]); }
    }
  }
}

TEST(Formulas, Evaluation) {
  // Forwards only: m t_f, and p - 1 stages (v = 1) to fill the pipeline.
  for (const int p : {1, 2, 4}) {
    for (const int m : {1, 3, 8}) {
      const Report report = check(forward_only(p, 1, m), {.forward = 2.0, .backward = 5.0});
      ASSERT_TRUE(report.ok) << report.problem;
      EXPECT_DOUBLE_EQ(report.makespan, 2.0 * (m + p - 1));
      EXPECT_EQ(report.ranks[0].warm_up, 0);
    }
  }
}

}  // namespace
}  // namespace ms::sched
