#include "train/run/expectation.h"

#include <gtest/gtest.h>

namespace ms::train {
namespace {

// Adds windows of steps that vary by `spread`, evenly, and returns whether there is something to say at their end.
bool says_after(StepWindow& window, double seconds, double spread = 0, std::size_t windows = StepWindow::kLasting) {
  bool says = false;
  for (std::size_t i = 0; i < windows * StepWindow::kSteps; ++i) {
    EXPECT_FALSE(says) << "only the last step says something";
    const double place =
        2.0 * static_cast<double>(i % StepWindow::kSteps) / static_cast<double>(StepWindow::kSteps) - 1;
    says = window.add(seconds + spread * place);
  }
  return says;
}

TEST(Expectation, IsSaidOnceAndWhenStepsChange) {
  StepWindow window;
  EXPECT_TRUE(says_after(window, 7, 0, 1));
  EXPECT_FALSE(says_after(window, 7));
  EXPECT_FALSE(says_after(window, 7.5));
  EXPECT_TRUE(says_after(window, 9)) << "slower";
  EXPECT_FALSE(says_after(window, 9));
  EXPECT_TRUE(says_after(window, 7)) << "well again";
}

TEST(Expectation, ShortChangesAndNoiseAreNone) {
  StepWindow window;
  EXPECT_TRUE(says_after(window, 7, 0, 1));
  EXPECT_FALSE(says_after(window, 14, 0, 2));
  EXPECT_FALSE(says_after(window, 7, 0, 1));
  EXPECT_FALSE(says_after(window, 14, 0, 2));
  StepWindow noisy;
  EXPECT_TRUE(says_after(noisy, 7, 6, 1));
  EXPECT_FALSE(says_after(noisy, 8, 6));
  EXPECT_TRUE(says_after(noisy, 12, 6));
  StepWindow pauses;
  EXPECT_TRUE(says_after(pauses, 7, 0, 1));
  bool says = false;
  for (std::size_t i = 0; i < 5 * StepWindow::kSteps; ++i) says = says || pauses.add(i % 10 == 0 ? 30 : 7);
  EXPECT_FALSE(says) << "some long steps do not change the median";
}

TEST(Expectation, IsNotSaidAgainAndAgain) {
  StepWindow window;
  EXPECT_TRUE(says_after(window, 0.1, 0, 1));
  double since_s = 0;
  bool says = false;
  while (!says) {
    ASSERT_LE(since_s, 2 * StepWindow::kPause_s);
    since_s += 0.2;
    says = window.add(0.2);
  }
  EXPECT_GE(since_s, StepWindow::kPause_s - 1);
  StepWindow later(45);
  EXPECT_FALSE(says_after(later, 0.2, 0, 2)) << "the traces have no step yet";
  EXPECT_TRUE(says_after(later, 0.2, 0, 1));
}

}  // namespace
}  // namespace ms::train
