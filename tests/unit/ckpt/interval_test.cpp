// The interval between saves: Daly's formula against the minimum of the model that it approximates, and its limits.
#include "ckpt/interval.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ms::ckpt {
namespace {

// Daly's model, eq. 20, without restarts: the time that an hour of work takes when it is cut in intervals and every
// interval with its save is begun again until no failure hits it, failures being Poisson.
double slowdown(double interval_s, double cost_s, double mtbf_s) {
  return mtbf_s * std::expm1((interval_s + cost_s) / mtbf_s) / interval_s;
}

// By golden section, the function having one minimum.
double best_interval_s(double cost_s, double mtbf_s) {
  constexpr double kGolden = 0.6180339887498949;
  double low = cost_s / 1000, high = 10 * mtbf_s;
  while (high - low > 1e-9 * high) {
    const double a = high - kGolden * (high - low), b = low + kGolden * (high - low);
    if (slowdown(a, cost_s, mtbf_s) < slowdown(b, cost_s, mtbf_s)) {
      high = b;
    } else {
      low = a;
    }
  }
  return low;
}

TEST(Interval, IsCloseToTheBestOfTheModel) {
  struct Row {
    double cost_s, mtbf_s, tolerance;  // the formula is an expansion in cost / (2 mtbf)
  };
  for (const Row& row : {Row{0.05, 86400, 1e-6}, Row{1, 3600, 1e-5}, Row{30, 7200, 1e-3}, Row{300, 6 * 3600, 2e-3},
                         Row{300, 3600, 1e-2}, Row{600, 1200, 5e-2}}) {
    const double best = best_interval_s(row.cost_s, row.mtbf_s);
    EXPECT_NEAR(daly_interval_s(row.cost_s, row.mtbf_s) / best, 1, row.tolerance)
        << row.cost_s << " s, " << row.mtbf_s << " s, best " << best;
  }
}

TEST(Interval, BeginsWithYoungsTerm) {
  const double young = std::sqrt(2 * 0.01 * 1e6);
  EXPECT_NEAR(daly_interval_s(0.01, 1e6) / young, 1, 1e-3);
  EXPECT_LT(daly_interval_s(0.01, 1e6), young);  // the save itself is part of the time at risk
}

TEST(Interval, IsTheTimeBetweenFailuresWhereSavingTakesLonger) {
  EXPECT_EQ(daly_interval_s(200, 100), 100);
  EXPECT_EQ(daly_interval_s(1e9, 100), 100);
  EXPECT_NEAR(daly_interval_s(199.999, 100), 200 * (1 + 1.0 / 3 + 1.0 / 9) - 200, 0.01);  // just inside the formula
}

TEST(IntervalDeathTest, RefusesWhatIsNoTime) {
  for (const auto& [cost, mtbf] : {std::pair{0.0, 1.0}, {1.0, 0.0}, {-1.0, 1.0}, {1.0, std::nan("")}}) {
    EXPECT_EXIT(daly_interval_s(cost, mtbf), testing::ExitedWithCode(70), "an interval for a cost of");
  }
}

}  // namespace
}  // namespace ms::ckpt
