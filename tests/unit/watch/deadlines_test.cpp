#include "watch/deadlines.h"

#include <gtest/gtest.h>

namespace ms::watch {
namespace {

TEST(Deadlines, AreTheConfiguredOneUntilEnoughIsKnown) {
  Deadlines deadlines(600);
  EXPECT_EQ(deadlines.of("step"), 600);
  for (std::size_t i = 0; i + 1 < Deadlines::kEnough; ++i) deadlines.took("step", 0.1);
  EXPECT_DOUBLE_EQ(deadlines.of("step"), 3 * 0.1 + 30);
  deadlines.took("step", 0.2);
  EXPECT_DOUBLE_EQ(deadlines.of("step"), 3 * 0.2 + 5);
  EXPECT_EQ(deadlines.of("save"), 600);
}

TEST(Deadlines, FollowTheLongestOfTheLastTimes) {
  Deadlines deadlines(600);
  deadlines.took("step", 50);
  for (std::size_t i = 1; i < Deadlines::kRemembered; ++i) deadlines.took("step", 1);
  EXPECT_DOUBLE_EQ(deadlines.of("step"), 155);
  deadlines.took("step", 1);  // forgets the 50 s
  EXPECT_DOUBLE_EQ(deadlines.of("step"), 8);
}

TEST(Deadlines, OfTimesThatAreAlikeHaveLessSlack) {
  Deadlines deadlines(600);
  for (std::size_t i = 0; i < Deadlines::kRemembered / 2; ++i) {
    EXPECT_EQ(deadlines.slack_s("step"), 5) << "after " << i;
    deadlines.took("step", 0.25);
  }
  EXPECT_DOUBLE_EQ(deadlines.slack_s("step"), 4);
  deadlines.took("step", 0.3);
  EXPECT_DOUBLE_EQ(deadlines.slack_s("step"), 4.5);
  EXPECT_DOUBLE_EQ(deadlines.of("step", 4.5), 3 * 0.3 + 4.5);
  deadlines.took("step", 0.5);
  EXPECT_DOUBLE_EQ(deadlines.slack_s("step"), 5);
  EXPECT_DOUBLE_EQ(deadlines.of("step"), 6.5);
}

TEST(Deadlines, TypicalIsTheMedianOfWhatIsRemembered) {
  Deadlines deadlines(600);
  for (std::size_t i = 0; i + 1 < Deadlines::kEnough; ++i) deadlines.took("step", 0.1);
  EXPECT_FALSE(deadlines.typical_s("step"));
  EXPECT_FALSE(deadlines.typical_s("save"));
  for (int i = 0; i < 40; ++i) deadlines.took("step", 0.1);
  for (int i = 0; i < 20; ++i) deadlines.took("step", 9);  // slow now
  EXPECT_EQ(deadlines.typical_s("step"), 0.1);
}

TEST(Deadlines, OfSectionsWithoutEndAreNotKept) {
  Deadlines deadlines(600);
  for (std::size_t i = 0; i < Deadlines::kMostSections; ++i) deadlines.took("s" + std::to_string(i), 1);
  deadlines.took("another", 1);
  EXPECT_EQ(deadlines.of("another"), 600);
  EXPECT_LT(deadlines.of("s0"), 600);
}

TEST(Deadlines, AreSureOnceEnoughIsKnown) {
  Deadlines deadlines(600);
  for (std::size_t i = 0; i + 1 < Deadlines::kEnough; ++i) deadlines.took("step", 10);
  EXPECT_EQ(deadlines.sure("step", 15), 600);
  deadlines.took("step", 10);
  EXPECT_DOUBLE_EQ(deadlines.sure("step", 15), 35);
  EXPECT_DOUBLE_EQ(deadlines.sure("step", 100), 100);
  EXPECT_DOUBLE_EQ(deadlines.sure("step", 1000), 600);
}

TEST(Deadlines, NeverExceedTheConfiguredOne) {
  Deadlines deadlines(60);
  for (int i = 0; i < 10; ++i) deadlines.took("save", 100);
  EXPECT_EQ(deadlines.of("save"), 60);
}

}  // namespace
}  // namespace ms::watch
