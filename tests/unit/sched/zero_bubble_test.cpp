// Schedules with split backwards: ZB-H1 in its order, time and memory, and what the checker must refuse of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "edit.h"
#include "sched/checker.h"
#include "sched/csv.h"
#include "sched/registry.h"

namespace ms::sched {
namespace {

using testing::HasSubstr;

TEST(ZeroBubble, Orders) {
  const Schedule schedule = zero_bubble_h1(3, 4);
  EXPECT_EQ(computations(schedule, 0), "F0.0 F0.1 F0.2 I0.0 W0.0 F0.3 I0.1 W0.1 I0.2 W0.2 I0.3 W0.3");
  EXPECT_EQ(computations(schedule, 1), "F0.0 F0.1 I0.0 F0.2 I0.1 W0.0 F0.3 I0.2 W0.1 I0.3 W0.2 W0.3");
  EXPECT_EQ(computations(schedule, 2), "F0.0 I0.0 F0.1 I0.1 F0.2 I0.2 W0.0 F0.3 I0.3 W0.1 W0.2 W0.3");
  EXPECT_EQ(computations(zero_bubble_h1(4, 1), 3), "F0.0 I0.0 W0.0") << "fewer microbatches than ranks";
}

TEST(ZeroBubble, GradientsLeaveAfterTheInputHalfAndAreReducedAfterTheLastWeightHalf) {
  EXPECT_EQ(to_csv(zero_bubble_h1(2, 2)),
            "# ms schedule 1: pp 2, chunks 1, microbatches 2, training\n"
            "G0,F0.0,SF0.0,RB0.0,F0.1,SF0.1,I0.0,RB0.1,W0.0,I0.1,W0.1,D0\n"
            "G0,RF0.0,F0.0,RF0.1,I0.0,SB0.0,F0.1,I0.1,SB0.1,W0.0,W0.1,D0\n");
}

struct Parts {
  double forward, input, weight;
  Times times() const {
    return {.forward = forward, .backward = input + weight, .weight_share = weight / (input + weight)};
  }
};

double formula_of(int p, int m, const Parts& t) {
  return find_kind("zb-h1", 1)->bubble({.pp = p, .chunks = 1, .microbatches = m}, t.times());
}

// With three equal times a third of 1F1B's bubble, as the paper has it; two thirds of the time is saved however many
// microbatches there are, once they are as many as ranks.
TEST(ZeroBubble, FormulaHasThePapersFigures) {
  for (const int p : {1, 2, 4, 8}) {
    EXPECT_DOUBLE_EQ(formula_of(p, p, {1, 1, 1}), p - 1);
    EXPECT_DOUBLE_EQ(formula_of(p, 4 * p, {1, 1, 1}), p - 1);
    EXPECT_DOUBLE_EQ(formula_of(p, 4 * p, {3, 3, 2}), (p - 1) * (3 + 3 - 2));
    EXPECT_DOUBLE_EQ(formula_of(p, 1, {1, 1, 1}), 2 * (p - 1)) << "one microbatch: no weight half fills anything";
    EXPECT_DOUBLE_EQ(3 * formula_of(p, p, {1, 1, 1}),
                     find_kind("1f1b", 1)->bubble({.pp = p, .microbatches = p}, {.forward = 1, .backward = 2}));
  }
}

constexpr int kRanks[] = {1, 2, 3, 4, 8};
constexpr int kMicrobatches[] = {1, 2, 3, 4, 7, 8, 12};

TEST(ZeroBubble, TimeAndMemoryAgreeWithTheFormula) {
  const Parts kParts[] = {{1, 1, 1}, {1, 1, 0.5}, {2, 1, 1}, {1, 3, 0.25}, {1.5, 2, 1.25}, {3, 2, 2}};
  for (const int p : kRanks) {
    for (const int m : kMicrobatches) {
      const Schedule schedule = zero_bubble_h1(p, m);
      for (const Parts& t : kParts) {
        const Report report = check(schedule, t.times());
        ASSERT_TRUE(report.ok) << report.problem;
        const double busy = m * (t.forward + t.input + t.weight);
        const double bubble = formula_of(p, m, t);
        EXPECT_NEAR(report.makespan, busy + bubble, 1e-9 * busy) << "p " << p << " m " << m;
        EXPECT_NEAR(report.bubble, bubble / busy, 1e-9) << "p " << p << " m " << m;
        if (m >= p) { EXPECT_NEAR(bubble, (p - 1) * (t.forward + t.input - t.weight), 1e-9); }
        for (int r = 0; r < p; ++r) {
          const RankReport& rank = report.ranks[static_cast<std::size_t>(r)];
          EXPECT_EQ(rank.peak_chunks, std::min(p, m));
          EXPECT_EQ(rank.warm_up, std::min({p - r - 1, m - 1}));
        }
        EXPECT_EQ(report.ranks[0].peak_chunks, std::min(p, m)) << "no more than 1F1B's worst rank";
      }
    }
  }
}

// A weight half that takes longer than a forward or an input half leaves gaps of its own.
TEST(ZeroBubble, LongWeightHalvesStayBetweenTheFormulaAndOneForwardOneBackward) {
  bool longer = false;
  for (const int p : kRanks) {
    for (const int m : kMicrobatches) {
      for (const Parts& t : {Parts{1, 1, 2}, Parts{1, 2, 1.5}, Parts{2, 1, 1.5}, Parts{0.5, 0.5, 3}}) {
        const double made = check(zero_bubble_h1(p, m), t.times()).makespan;
        const double busy = m * (t.forward + t.input + t.weight);
        const double formula = busy + formula_of(p, m, t);
        EXPECT_GE(made, formula - 1e-9) << "p " << p << " m " << m;
        EXPECT_LE(made, check(one_f_one_b(p, m), t.times()).makespan + 1e-9) << "p " << p << " m " << m;
        longer = longer || made > formula + 1e-9;
      }
    }
  }
  EXPECT_TRUE(longer) << "the formula would hold for every time";
}

struct HalfDamage {
  const char* name;
  std::function<void(Schedule&)> apply;  // to zb-h1, pp 2, 3 microbatches, coupled receives
  const char* problem;
};

const HalfDamage kHalfDamages[] = {
    {"weight half first", [](Schedule& s) { swap(s, 0, "I0.0", "W0.0"); }, "(W0.0) comes before its backward_input"},
    {"no weight half", [](Schedule& s) { drop(s, 0, "W0.2"); }, "(D0) comes after 2 of 3 backwards of its chunk"},
    {"no weight half and no reduction",
     [](Schedule& s) {
       drop(s, 0, "W0.2");
       drop(s, 0, "D0");
     },
     "rank 0 has no backward_weight of chunk 0, microbatch 2"},
    {"no input half", [](Schedule& s) { drop(s, 1, "I0.2"); }, "(SB0.2) comes before its backward"},
    {"whole besides halves",
     [](Schedule& s) {
       Row row = at(s, 0, "W0.1");
       row.action = Action::backward;
       s.rows[0].insert(s.rows[0].begin() + static_cast<std::ptrdiff_t>(find(s, 0, "W0.1")), row);
     },
     "(I0.1): a backward is whole or in two halves"},
    {"input half besides the whole",
     [](Schedule& s) {
       Row row = at(s, 0, "I0.0");
       row.action = Action::backward;
       s.rows[0].insert(s.rows[0].begin() + static_cast<std::ptrdiff_t>(find(s, 0, "I0.0")), row);
     },
     "(I0.0) does not go with row"},
    {"weight half besides the whole", [](Schedule& s) { at(s, 0, "I0.2").action = Action::backward; },
     "(W0.2) does not go with row"},
    {"weight halves out of order", [](Schedule& s) { swap(s, 1, "W0.1", "W0.2"); },
     "(W0.2) is out of order: the next backward_weight of chunk 0 is that of microbatch 1"},
    {"whole overtakes a weight half",
     [](Schedule& s) {
       at(s, 1, "I0.2").action = Action::backward;
       drop(s, 1, "W0.2");
     },
     "(B0.2) is out of order: the next backward_weight of chunk 0 is that of microbatch 1"},
    {"input halves out of order",
     [](Schedule& s) {
       at(s, 1, "I0.0").microbatch = 9;
       at(s, 1, "I0.1").microbatch = 0;
       at(s, 1, "I0.9").microbatch = 1;
       assign_slots(s);
     },
     "(I0.1) comes before its forward"},
    {"half twice",
     [](Schedule& s) {
       const Row row = at(s, 1, "W0.0");
       s.rows[1].insert(s.rows[1].begin() + static_cast<std::ptrdiff_t>(find(s, 1, "W0.0")), row);
     },
     "(W0.0) was already done in row"},
    {"before its gradient", [](Schedule& s) { swap(s, 0, "I0.1", "RB0.1"); }, "(I0.1) comes before its recv_backward"},
    {"sent before it is there", [](Schedule& s) { swap(s, 1, "I0.1", "SB0.1"); }, "(SB0.1) comes before its backward"},
    {"reduced before the last weight half", [](Schedule& s) { swap(s, 1, "W0.2", "D0"); },
     "(D0) comes after 2 of 3 backwards of its chunk"},
    {"slot free before the weight half",
     [](Schedule& s) {
       for (Row& row : s.rows[1]) {
         if (row.microbatch == 1) row.slot = 0;
       }
     },
     "takes slot 0, which microbatch 0 of chunk 0 uses until row"},
    {"in evaluation", [](Schedule& s) { s.shape.training = false; }, "in a forward-only schedule"},
};

TEST(ZeroBubble, CheckerFindsDamage) {
  const Schedule sound = zero_bubble_h1(2, 3, {.early_receives = false});
  ASSERT_TRUE(check(sound).ok) << check(sound).problem;
  for (const HalfDamage& damage : kHalfDamages) {
    Schedule schedule = sound;
    damage.apply(schedule);
    const Report report = check(schedule);
    EXPECT_FALSE(report.ok) << damage.name;
    EXPECT_THAT(report.problem, HasSubstr(damage.problem)) << damage.name;
  }
}

Report check_text(std::string_view text, int microbatches, const Times& times) {
  return check(parse_csv(text, "test", {.pp = 2, .chunks = 1, .microbatches = microbatches}), times);
}

TEST(ZeroBubble, WholeAndSplitBackwardsMix) {
  const Report report = check_text(
      "G0,F0.0,SF0.0,F0.1,SF0.1,RB0.0,B0.0,RB0.1,I0.1,W0.1,D0\n"
      "G0,RF0.0,F0.0,I0.0,SB0.0,W0.0,RF0.1,F0.1,B0.1,SB0.1,D0\n",
      2, {.forward = 1, .backward = 3, .weight_share = 1.0 / 3});
  ASSERT_TRUE(report.ok) << report.problem;
  // Rank 1: F0 from 1, I0 from 2, W0 from 4, F1 from 5, B1 from 6 to 9; then rank 0 has I1 and W1 left.
  EXPECT_DOUBLE_EQ(report.makespan, 12);
  EXPECT_EQ(report.ranks[0].peak_chunks, 2);
  EXPECT_EQ(report.ranks[1].peak_chunks, 1);
}

// Rank 1 has one slot: microbatch 1 arrives there when the weight half of microbatch 0 is done, and not before.
TEST(ZeroBubble, TheSlotLivesUntilTheWeightHalf) {
  constexpr std::string_view kText =
      "G0,F0.0,SF0.0,F0.1,SF0.1,RB0.0,I0.0,W0.0,RB0.1,I0.1,W0.1,D0\n"
      "G0,RF0.0,F0.0,I0.0,SB0.0,W0.0,RF0.1,F0.1,I0.1,SB0.1,W0.1,D0\n";
  const Times times{.forward = 1, .backward = 2, .weight_share = 0.5, .transfer = 1};
  Schedule schedule = parse_csv(kText, "test", {.pp = 2, .chunks = 1, .microbatches = 2});
  ASSERT_EQ(schedule.slots[1], 1);
  // Rank 1: receives until 2, F0 I0 W0 until 5, receives until 6, F1 I1 until 8; rank 0: receives until 9, I1 W1.
  EXPECT_DOUBLE_EQ(check(schedule, times).makespan, 11);
  schedule.slots[1] = 2;
  for (Row& row : schedule.rows[1]) {
    if (row.microbatch == 1) row.slot = 1;
  }
  EXPECT_DOUBLE_EQ(check(schedule, times).makespan, 10) << "with a second slot the transfer is hidden";
}

}  // namespace
}  // namespace ms::sched
