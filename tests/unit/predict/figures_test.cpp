// Figures of rankings with known answers, and intervals from resamples of units.
#include "predict/figures.h"

#include <gtest/gtest.h>

namespace ms::predict {
namespace {

constexpr FigureOptions kTwo{.k = 2, .recall = 0.5, .resamples = 100};

// One day: units 0, 1, .. with scores 9, 8, ..; those of `failing` fail, after as many days as their number.
std::vector<Outcome> day(std::uint32_t units, std::initializer_list<std::uint32_t> failing) {
  std::vector<Outcome> all;
  for (std::uint32_t unit = 0; unit < units; ++unit) {
    const bool fails = std::find(failing.begin(), failing.end(), unit) != failing.end();
    all.push_back({.unit = unit,
                   .score = 9 - static_cast<float>(unit),
                   .fails = fails,
                   .days_to_failure = static_cast<float>(unit)});
  }
  return all;
}

TEST(Figures, OfOneDay) {
  const Figures all = figures(day(8, {1, 3, 7}), kTwo);
  EXPECT_DOUBLE_EQ(all.precision_at_k, 0.5);
  EXPECT_DOUBLE_EQ(all.recall_at_k, 1.0 / 3);
  EXPECT_DOUBLE_EQ(all.pr_auc, (1.0 / 2 + 2.0 / 4 + 3.0 / 8) / 3);
  EXPECT_DOUBLE_EQ(all.precision_at_recall, 2.0 / 4) << "two of three are found at the fourth row";
  EXPECT_DOUBLE_EQ(all.lead_days, 1);
  EXPECT_DOUBLE_EQ(all.flagged, 2);
  EXPECT_DOUBLE_EQ(all.caught, 1);
  EXPECT_DOUBLE_EQ(all.precision_beyond_k, 2.0 / 6) << "two fail of the six others";
}

TEST(Figures, KCountsOnEachDay) {
  std::vector<Outcome> both = day(8, {0, 1});
  for (Outcome row : day(8, {5})) {
    row.decision = 1;
    row.score += 100;  // the second day's scores are on another scale
    both.push_back(row);
  }
  const Figures all = figures(both, kTwo);
  EXPECT_DOUBLE_EQ(all.flagged, 4);
  EXPECT_DOUBLE_EQ(all.precision_at_k, 0.5);
}

TEST(Figures, EqualScoresFavourNobody) {
  std::vector<Outcome> rows = day(1000, {});
  for (Outcome& row : rows) {
    row.score = 0;
    row.fails = row.unit < 100;  // the first ones fail
  }
  const Figures all = figures(rows, {.k = 200});
  EXPECT_DOUBLE_EQ(all.pr_auc, 0.1) << "one block: the base rate";
  EXPECT_NEAR(all.precision_at_k, 0.1, 0.06);
}

TEST(Figures, NoFailuresAreNoDivision) {
  const Figures none = figures(day(8, {}), kTwo);
  EXPECT_EQ(none.precision_at_k, 0);
  EXPECT_EQ(none.recall_at_k, 0);
  EXPECT_EQ(none.pr_auc, 0);
}

TEST(Figures, IntervalsHoldTheValueAndNarrowWithMoreUnits) {
  const auto width = [](std::uint32_t units) {
    std::vector<Outcome> rows = day(units, {});
    for (Outcome& row : rows) row.fails = row.unit % 3 == 0;
    const Estimate e = estimate({rows, rows}, units, {.k = units / 2, .resamples = 200});
    EXPECT_LE(e.low.precision_at_k, e.value.precision_at_k);
    EXPECT_GE(e.high.precision_at_k, e.value.precision_at_k);
    EXPECT_NEAR(e.value.precision_at_k, 1.0 / 3, 0.05);
    return e.high.precision_at_k - e.low.precision_at_k;
  };
  const double few = width(40), many = width(4000);
  EXPECT_GT(few, 4 * many) << "by the square root of a hundred, about";
}

}  // namespace
}  // namespace ms::predict
