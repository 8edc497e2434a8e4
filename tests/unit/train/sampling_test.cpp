#include "train/engine/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ms::train {
namespace {

// Logits of the probabilities 0.1, 0.4, 0.2, 0.3.
const std::vector<float> kLogits = {std::log(0.1F), std::log(0.4F), std::log(0.2F), std::log(0.3F)};

TEST(DrawToken, FallsWhereTheProbabilitiesSay) {
  const struct {
    Sampling sampling;
    double draw;
    std::int32_t token;
  } kRows[] = {
      {{0, 1}, 0.99, 1},  // the likeliest, whatever is drawn
      {{1, 1}, 0.0, 0},
      {{1, 1}, 0.09, 0},
      {{1, 1}, 0.11, 1},
      {{1, 1}, 0.51, 2},
      {{1, 1}, 0.71, 3},
      {{1, 1}, 0.9999, 3},
      // A temperature of 1/2 squares: 1, 16, 4, 9 of 30.
      {{0.5, 1}, 0.03, 0},
      {{0.5, 1}, 0.04, 1},
      {{0.5, 1}, 0.56, 1},
      {{0.5, 1}, 0.57, 2},
      {{0.5, 1}, 0.71, 3},
      // 0.4 + 0.3 reach 0.6: tokens 1 and 3 are left, 4 to 3.
      {{1, 0.6}, 0.0, 1},
      {{1, 0.6}, 0.57, 1},
      {{1, 0.6}, 0.58, 3},
      {{1, 0.6}, 0.99, 3},
      // The likeliest always stays, and nothing is left out of 1.
      {{1, 1e-9}, 0.99, 1},
      {{1, 0.9999}, 0.01, 0},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(draw_token(kLogits, row.sampling, row.draw), row.token)
        << row.sampling.temperature << " " << row.sampling.top_p << " " << row.draw;
  }
}

TEST(DrawToken, TakesTheFirstOfEquals) {
  const std::vector<float> equal(5, 2.5F);
  EXPECT_EQ(draw_token(equal, {0, 1}, 0.7), 0);
  EXPECT_EQ(draw_token(equal, {1, 0.3}, 0.99), 1) << "tokens 0 and 1 make up 0.4";
}

TEST(DrawToken, TakesExtremes) {
  EXPECT_EQ(draw_token(std::vector<float>{3.0F}, {1, 0.5}, 0.99), 0);
  EXPECT_EQ(draw_token(std::vector<float>{-1e30F, 1e30F, -INFINITY}, {1, 1}, 0.0), 1);
  EXPECT_EQ(draw_token(std::vector<float>{0.0F, 1.0F}, {1e-4, 1}, 0.0), 1) << "sharp, and no overflow";
}

}  // namespace
}  // namespace ms::train
