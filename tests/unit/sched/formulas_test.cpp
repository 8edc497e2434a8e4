// Schedules run in virtual time agree with the closed formulas of their rows (sched/registry.h), with the warm-up and
// memory that papers state for them, and with the figures quoted for interleaved 1F1B.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "edit.h"
#include "sched/checker.h"
#include "sched/registry.h"

namespace ms::sched {
namespace {

// In all of them no half of the backward takes longer than the forward or than the other half.
constexpr Times kTimes[] = {{1.0, 2.0}, {1.0, 1.0}, {3.0, 1.0}};

// Every registered schedule, in every shape that its rules for chunks and microbatches allow.
TEST(Formulas, EveryScheduleHasTheBubbleOfItsRow) {
  for (const ScheduleKind* kind : schedule_kinds()) {
    for (const Times& times : kTimes) {
      for (const int p : {1, 2, 3, 4, 5, 8}) {
        for (const int m : {1, 2, 3, 4, 7, 8, 16}) {
          for (const int v : {1, 2, 3, 6}) {
            if (!kind->takes(v) || (p == 1 && v > 1) || (kind->whole_groups && m % p != 0)) continue;
            for (const bool early : {false, true}) {
              const Schedule schedule = make_schedule(kind->key, p, v, m, {.early_receives = early});
              const Report report = check(schedule, times);
              ASSERT_TRUE(report.ok) << report.problem;
              const double busy = m * (times.forward + times.backward);
              const double bubble = kind->bubble(schedule.shape, times);
              EXPECT_NEAR(report.makespan, busy + bubble, 1e-9 * busy)
                  << kind->title() << " p " << p << " m " << m << " v " << v;
              EXPECT_NEAR(report.bubble, bubble / busy, 1e-9)
                  << kind->title() << " p " << p << " m " << m << " v " << v;
            }
          }
        }
      }
    }
  }
}

// Returns the warm-up that the checker sees: the first forward of the steady phase comes before the first backward too,
// so a rank whose warm-up is everything cannot be told from one whose warm-up is one less.
int seen_warm_up(int formula, int forwards) { return std::min(formula, forwards - 1); }

TEST(Formulas, WarmUpAndMemoryOfGpipeAndOneForwardOneBackward) {
  for (const bool early : {false, true}) {
    for (const int p : {1, 2, 3, 4, 5, 8}) {
      for (const int m : {1, 2, 3, 4, 7, 8, 16}) {
        const Report all = check(gpipe(p, m, {.early_receives = early}));
        const Report report = check(one_f_one_b(p, m, {.early_receives = early}));
        for (int r = 0; r < p; ++r) {
          const auto rank = static_cast<std::size_t>(r);
          EXPECT_EQ(all.ranks[rank].peak_chunks, m);
          EXPECT_EQ(report.ranks[rank].peak_chunks, std::min(p - r, m));
          EXPECT_EQ(report.ranks[rank].peak_stages, std::min(p - r, m));
          EXPECT_EQ(report.ranks[rank].warm_up, seen_warm_up(std::min(p - r - 1, m), m));
        }
      }
    }
  }
}

TEST(Formulas, WarmUpAndMemoryOfInterleaved) {
  for (const bool early : {false, true}) {
    for (const int p : {2, 3, 4, 8}) {
      for (const int groups : {1, 2, 4}) {
        for (const int v : {2, 3, 6}) {
          const int m = p * groups;
          const Report report = check(interleaved(p, v, m, {.early_receives = early}));
          for (int r = 0; r < p; ++r) {
            const RankReport& rank = report.ranks[static_cast<std::size_t>(r)];
            const int warm_up = std::min((p - r - 1) * 2 + (v - 1) * p, m * v);
            EXPECT_EQ(rank.warm_up, seen_warm_up(warm_up, m * v));
            EXPECT_EQ(rank.peak_chunks, std::min(warm_up + 1, m * v));
          }
        }
      }
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
    const Shape shape{.pp = c.p, .chunks = c.v, .microbatches = c.m};
    EXPECT_DOUBLE_EQ(find_kind("1f1b", c.v)->bubble(shape, {.forward = 1, .backward = 2}), c.makespan - 3 * c.m);
    // Megatron's memory factor: p (1 + (p - 1) / (p v)) on the first rank.
    EXPECT_DOUBLE_EQ(report.ranks[0].peak_stages, c.p * (1 + (c.p - 1.0) / (c.p * c.v)));
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
