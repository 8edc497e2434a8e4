#include "train/run/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ms::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Norms 1 and 2 in turn: their mean is 1.5 and their deviation 0.5, so that a norm above 2.5 is a spike.
GuardConfig watchful(const std::string& spike) { return {.spike = spike, .spike_zscore = 2, .window = 4}; }
std::int64_t fill(Guard& guard, std::int64_t steps = 4) {
  for (std::int64_t step = 0; step < steps; ++step) {
    EXPECT_EQ(guard.limit(step), kInfinity) << step;
    const Ruling ruling = guard.judge(step, 3, 1 + static_cast<double>(step % 2));
    EXPECT_TRUE(ruling.warning.empty() && !ruling.stop) << step;
  }
  return steps;
}

TEST(Guard, LeavesHealthyStepsAlone) {
  Guard guard(GuardConfig{});
  for (std::int64_t step = 0; step < 300; ++step) {
    EXPECT_EQ(guard.limit(step), kInfinity);
    const Ruling ruling = guard.judge(step, 3, step == 200 ? 1e30 : 1);  // spikes are ignored by default
    EXPECT_TRUE(ruling.warning.empty() && !ruling.stop) << step;
  }
}

TEST(Guard, SkipsWhatIsNotFinite) {
  Guard guard(GuardConfig{});
  for (const double norm : {kNan, kInfinity, -kNan}) {
    const Ruling ruling = guard.judge(6, kNan, norm);
    EXPECT_THAT(ruling.warning, AllOf(HasSubstr("step 7: the gradient norm is "), HasSubstr("the loss nan"),
                                      HasSubstr("the step was skipped")));
    EXPECT_FALSE(ruling.stop);
  }
}

TEST(Guard, StopsAtWhatIsNotFinite) {
  Guard guard({.nonfinite = "stop"});
  EXPECT_FALSE(guard.judge(0, 3, 1).stop);
  const Ruling ruling = guard.judge(1, 2.5, kInfinity);
  ASSERT_TRUE(ruling.stop);
  EXPECT_EQ(ruling.stop->blame(), Blame::user);
  EXPECT_EQ(ruling.stop->kind(), "train.diverged");
  EXPECT_EQ(exit_code(ruling.stop->blame()), ExitCode::usage);
  EXPECT_EQ(ruling.stop->message(), "step 2: the gradient norm is inf, the loss 2.5");
  EXPECT_THAT(ruling.stop->hint(), AllOf(HasSubstr("ms-data sample CONFIG --step 2"), HasSubstr("optim.lr"),
                                         HasSubstr("guard.nonfinite = \"skip\"")));
  EXPECT_TRUE(ruling.warning.empty());
}

TEST(Guard, StopsAfterTooManySkipsOnEnd) {
  Guard guard({.max_skips = 3});
  std::int64_t step = 0;
  for (const double norm : {kNan, kNan, 1.0, kNan, kInfinity}) EXPECT_FALSE(guard.judge(step++, 3, norm).stop) << step;
  const Ruling ruling = guard.judge(step, 3, kNan);
  ASSERT_TRUE(ruling.stop);
  EXPECT_EQ(ruling.stop->kind(), "train.diverged");
  EXPECT_THAT(ruling.stop->message(), AllOf(HasSubstr("step 6"), HasSubstr("3 steps in a row"), HasSubstr("diverged")));
}

TEST(Guard, LimitComesFromAFullWindowTwoStepsBefore) {
  Guard guard(watchful("skip"));
  std::int64_t step = fill(guard);
  EXPECT_EQ(guard.limit(step), kInfinity) << "issued when the host knew three norms";
  guard.judge(step++, 3, 1);
  EXPECT_EQ(guard.limit(step), 2.5F);
  // Whatever the pace: the next one's limit is known before this step is judged.
  EXPECT_EQ(guard.limit(step + 1), 2.5F);
  guard.judge(step++, 3, 2);
  EXPECT_EQ(guard.limit(step), 2.5F);
}

TEST(Guard, SkipsSpikesAndKeepsThemOutOfTheWindow) {
  Guard guard(watchful("skip"));
  std::int64_t step = fill(guard, 5);
  for (int spike = 0; spike < 3; ++spike) {
    EXPECT_EQ(guard.limit(step), 2.5F);
    const Ruling ruling = guard.judge(step++, 3, 100);
    EXPECT_THAT(ruling.warning, AllOf(HasSubstr("norm is 100"), HasSubstr("above 2.5"), HasSubstr("was skipped")));
    EXPECT_FALSE(ruling.stop);
  }
  EXPECT_TRUE(guard.judge(step, 3, 2.5).warning.empty()) << "at the limit is not above it";
}

// A norm of 0 would make a spike of each normal step.
TEST(Guard, KeepsNormsOfStepsWithoutTargetsOutOfTheWindow) {
  Guard guard(watchful("stop"));
  for (std::int64_t step = 0; step < 20; step += 2) {
    const Ruling without = guard.judge(step, {}, 0),
                 normal = guard.judge(step + 1, 3, 1 + static_cast<double>(step % 4) / 2);
    for (const Ruling& ruling : {without, normal}) EXPECT_TRUE(ruling.warning.empty() && !ruling.stop) << step;
  }
  EXPECT_EQ(guard.limit(20), 2.5F);
  EXPECT_EQ(guard.limit(21), 2.5F);
  EXPECT_TRUE(guard.judge(20, 3, 100).stop);
}

TEST(Guard, SkipsWhatIsNotFiniteInStepsWithoutTargets) {
  Guard guard({.max_skips = 2});
  EXPECT_THAT(guard.judge(0, {}, kNan).warning, HasSubstr("the step was skipped"));
  EXPECT_FALSE(guard.judge(1, {}, 0).stop) << "nothing shows that the run has not diverged";
  EXPECT_TRUE(guard.judge(2, kNan, kNan).stop);
}

TEST(Guard, WarnsOfSpikesThatAreTrainedOn) {
  Guard guard(watchful("warn"));
  std::int64_t step = fill(guard, 5);
  EXPECT_EQ(guard.limit(step), kInfinity) << "the device must not leave it out";
  EXPECT_THAT(guard.judge(step++, 3, 100).warning, AllOf(HasSubstr("a spike"), Not(HasSubstr("skipped"))));
  EXPECT_FALSE(guard.judge(step++, 3, 100).warning.empty());
  EXPECT_TRUE(guard.judge(step++, 3, 100).warning.empty()) << "it is in the window by now";
}

TEST(Guard, StopsAtSpikes) {
  Guard guard(watchful("stop"));
  const std::int64_t step = fill(guard, 5);
  EXPECT_EQ(guard.limit(step), 2.5F) << "the last state stays that before the spike";
  const Ruling ruling = guard.judge(step, 3, 100);
  ASSERT_TRUE(ruling.stop);
  EXPECT_EQ(ruling.stop->kind(), "train.spike");
  EXPECT_EQ(ruling.stop->blame(), Blame::user);
  EXPECT_THAT(ruling.stop->message(), AllOf(HasSubstr("step 6"), HasSubstr("above 2.5")));
  EXPECT_THAT(ruling.stop->hint(), HasSubstr("guard.spike = \"skip\""));
}

TEST(Guard, RollsBackAtWhatItsPolicySays) {
  GuardConfig config = watchful("rollback");
  config.max_skips = 1;  // a rollback is no skip
  Guard guard(config);
  const std::int64_t step = fill(guard, 5);
  EXPECT_EQ(guard.limit(step), 2.5F);
  const Ruling spike = guard.judge(step, 3, 100);
  EXPECT_THAT(spike.rollback, AllOf(HasSubstr("step 6"), HasSubstr("a spike, above 2.5")));
  EXPECT_TRUE(spike.warning.empty() && !spike.stop);
  Guard other({.nonfinite = "rollback", .max_skips = 1});
  const Ruling nan = other.judge(2, kNan, kNan);
  EXPECT_THAT(nan.rollback, HasSubstr("step 3: the gradient norm is nan, the loss nan"));
  EXPECT_TRUE(nan.warning.empty() && !nan.stop);
  EXPECT_TRUE(other.judge(3, 3, 1).rollback.empty());
}

TEST(Guard, SkippedStepsOfBothKindsCountTogether) {
  GuardConfig config = watchful("skip");
  config.max_skips = 2;
  Guard guard(config);
  const std::int64_t step = fill(guard, 5);
  EXPECT_FALSE(guard.judge(step, 3, 100).stop);
  EXPECT_TRUE(guard.judge(step + 1, kNan, kNan).stop);
}

}  // namespace
}  // namespace ms::train
