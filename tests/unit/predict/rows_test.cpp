// Rows: what they see, and that they see nothing of what comes later.
#include "predict/rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "predict/evaluate.h"
#include "support/errors.h"

namespace ms::predict {
namespace {

using test::thrown_by;

constexpr std::size_t kMonth = 2;  // "faults in the last 30 days"

// 100 days, unit a with these faults, unit b without; one metric for b, its day's number.
Dataset data_of(std::vector<Fault> faults) {
  Dataset data{.kinds = {"GPU", "fan"}, .metrics = {"temp"}, .first_day = 0, .last_day = 100, .bins = 101};
  const std::vector<Stay> always{{.begin_day = 0, .end_day = 100}};
  data.units = {{.name = "a", .stays = always, .faults = std::move(faults)}, {.name = "b", .stays = always}};
  for (int day = 0; day <= 100; ++day) {
    data.units[1].mean.push_back(static_cast<float>(day));
    data.units[1].peak.push_back(static_cast<float>(day) + 1);
  }
  return data;
}

Rows rows_of(const Dataset& data, const Task& task, std::vector<double> days) {
  return rows_at(data, layout_of(data, ""), task, days);
}

TEST(PredictRows, LabelsLookFromLeadToHorizonAndNoFurtherThanTheData) {
  const Dataset data = data_of({{.day = 50, .end_day = 50}});
  const Task task{.lead_days = 2, .horizon_days = 10};
  struct Row {
    double day;
    Label label;
  };
  for (const Row& row : {Row{37, Label::healthy}, Row{39, Label::fails}, Row{47.5, Label::fails},
                         Row{48.5, Label::healthy}, Row{88, Label::healthy}, Row{89, Label::unknown}}) {
    const Rows rows = rows_of(data, task, {row.day});
    EXPECT_EQ(rows.info[0].label, row.label) << row.day;
  }
  const Rows sure = rows_of(data_of({{.day = 95, .end_day = 95}}), task, {90});
  EXPECT_EQ(sure.info[0].label, Label::fails) << "it did fail, although the data end early";
  EXPECT_FLOAT_EQ(sure.info[0].days_to_failure, 5);
}

// 101 days of one metric: level(unit, day).
Dataset telemetry_of(int units, const std::function<float(int unit, int day)>& level) {
  Dataset data = data_of({});
  data.units.clear();
  for (int unit = 0; unit < units; ++unit) {
    Unit& added = data.units.emplace_back();
    added.name = fmt::format("{:03}", unit);
    added.stays = {{.begin_day = 0, .end_day = 100}};
    for (int day = 0; day <= 100; ++day) added.mean.push_back(level(unit, day));
    added.peak = added.mean;
  }
  return data;
}

// Columns of the metric: last day, last 3 days, last week, 3 days against month, peak of the week, spread of the week.
std::span<const float> levels_of(const Rows& rows, std::size_t unit) {
  return rows.row(unit).subspan(layout_of(data_of({}), "").table_columns() - 6, 6);
}

TEST(PredictRows, HugeValuesStayNumbers) {
  const Dataset data = telemetry_of(30, [](int unit, int day) { return (unit + day) % 3 == 0 ? 3e38F : -3e38F; });
  const Rows rows = rows_of(data, {}, {60});
  for (std::size_t unit = 0; unit < rows.size(); ++unit) {
    for (const float level : levels_of(rows, unit)) EXPECT_TRUE(std::isfinite(level));
    EXPECT_TRUE(std::isfinite(rows.row(unit).back()));
  }
}

TEST(PredictRows, ADistanceIsFromTheMedianOfAllUnitsInStandardDeviations) {
  const Rows rows = rows_of(telemetry_of(101, [](int unit, int) { return static_cast<float>(unit); }), {}, {80});
  constexpr float kSpread = 90 / 3.29F;  // from the 5th to the 95th
  EXPECT_FLOAT_EQ(levels_of(rows, 50)[0], 0);
  EXPECT_FLOAT_EQ(levels_of(rows, 100)[0], 50 / kSpread);
  EXPECT_FLOAT_EQ(levels_of(rows, 10)[4], -40 / kSpread);
  EXPECT_FLOAT_EQ(levels_of(rows, 100)[3], 0) << "its month was no other";
  EXPECT_FLOAT_EQ(rows.row(100).back(), 50 / kSpread) << "the series, too";
}

TEST(PredictRows, WhatNearlyAllHaveAlikeIsMeasuredByThoseThatDiffer) {
  const Rows rows =
      rows_of(telemetry_of(100, [](int unit, int) { return unit == 3   ? 4.0F
                                                           : unit == 7 ? 8.0F
                                                                       : 0.0F; }), {}, {80});
  EXPECT_FLOAT_EQ(levels_of(rows, 0)[0], 0);
  EXPECT_FLOAT_EQ(levels_of(rows, 7)[0], 3.29F);
  EXPECT_FLOAT_EQ(levels_of(rows, 3)[0], 3.29F / 2);
  const Rows alike = rows_of(telemetry_of(100, [](int, int) { return 5.0F; }), {}, {80});
  EXPECT_FLOAT_EQ(levels_of(alike, 7)[0], 0);
}

// A driver that counts differently, a hall that is cooled better: no unit is nearer to its failure.
TEST(PredictRows, WhatChangesForAllUnitsChangesNoRow) {
  const auto level = [](int unit, int day) { return static_cast<float>((unit * 37 + day * 11) % 101); };
  const Rows before = rows_of(telemetry_of(60, level), {}, {80});
  const Rows after = rows_of(
      telemetry_of(60, [&](int unit, int day) { return level(unit, day) + (day >= 70 ? 512.0F : 0.0F); }), {}, {80});
  for (std::size_t unit = 0; unit < 60; ++unit) {
    for (std::size_t column = 0; column < 5; ++column) {  // the spread of a week in which it changed is another
      EXPECT_NEAR(levels_of(before, unit)[column], levels_of(after, unit)[column], 1e-4) << unit << ", " << column;
    }
    EXPECT_FLOAT_EQ(before.row(unit).back(), after.row(unit).back());
  }
}

TEST(PredictRows, OnlyTheTargetIsAFailure) {
  const Dataset data = data_of({{.day = 50, .end_day = 50, .kind = 1}});
  EXPECT_EQ(rows_of(data, {.horizon_days = 10, .target = "GPU"}, {45}).info[0].label, Label::healthy);
  EXPECT_EQ(rows_of(data, {.horizon_days = 10, .target = "GPU,f*"}, {45}).info[0].label, Label::fails);
  const Error error = thrown_by([&] { rows_of(data, {.target = "NIC"}, {45}); });
  EXPECT_EQ(error.kind(), "predict.target");
  EXPECT_EQ(error.hint(), "the kinds are GPU, fan");
}

TEST(PredictRows, AUnitThatIsOutOfServiceHasNone) {
  Dataset data = data_of({{.day = 50, .end_day = 60}});
  data.units[1].stays = {{.begin_day = 0, .end_day = 20}, {.begin_day = 70, .end_day = 80}};
  EXPECT_EQ(rows_of(data, {}, {55}).size(), 0U);
  EXPECT_EQ(rows_of(data, {}, {65}).size(), 1U);
  const Rows before = rows_of(data, {.horizon_days = 5}, {18});
  EXPECT_EQ(before.info[1].label, Label::unknown) << "it was taken out before anybody could see it fail";
}

TEST(PredictRows, TimesThatBeganBeforeTheDataAreNotMadeUp) {
  Dataset data = data_of({});
  data.units[0].stays[0].begin_known = true;
  const Rows rows = rows_of(data, {}, {20});
  constexpr std::size_t kWithout = 5;
  constexpr std::size_t kHere = 6;
  EXPECT_FLOAT_EQ(rows.row(0)[kWithout], std::log1p(90.0F));
  EXPECT_FLOAT_EQ(rows.row(0)[kHere], std::log1p(20.0F));
  EXPECT_FLOAT_EQ(rows.row(0)[kHere + 1], std::log1p(20.0F));
  EXPECT_TRUE(std::isnan(rows.row(1)[kHere]));
}

TEST(PredictRows, CountsAndLevels) {
  const Rows rows = rows_of(data_of({{.day = 20, .end_day = 20}, {.day = 60, .end_day = 60}, {.day = 79.5}}), {}, {80});
  const std::span<const float> a = rows.row(0);
  const std::vector<float> counts(a.begin(), a.begin() + 5);
  std::vector<float> wanted;
  for (const int count : {1, 1, 2, 3, 3}) wanted.push_back(std::log1p(static_cast<float>(count)));
  EXPECT_EQ(counts, wanted);
  EXPECT_TRUE(std::isnan(levels_of(rows, 0)[0])) << "it has no telemetry";
  const auto only = [](int bin) {
    return telemetry_of(40, [=](int unit, int day) { return static_cast<float>(unit == 5 && day == bin); });
  };
  EXPECT_FLOAT_EQ(levels_of(rows_of(only(80), {}, {80}), 5)[0], 0) << "the bin of day 80 has not ended";
  EXPECT_FLOAT_EQ(levels_of(rows_of(only(79), {}, {80}), 5)[0], 3.29F);
  EXPECT_FLOAT_EQ(levels_of(rows_of(only(78), {}, {80}), 5)[0], 0);
  EXPECT_FLOAT_EQ(levels_of(rows_of(only(77), {}, {80}), 5)[1], 3.29F);
  EXPECT_FLOAT_EQ(levels_of(rows_of(only(74), {}, {80}), 5)[4], 3.29F) << "a peak of the week";
}

// A row must not change with anything that happens after its moment.
TEST(PredictRows, NothingLeaksFromTheFuture) {
  Dataset whole = telemetry_of(30, [](int unit, int day) { return static_cast<float>((unit * 37 + day * 11) % 101); });
  for (int i = 1; i < 20; ++i) whole.units[0].faults.push_back({.day = 5.0 * i - 0.5, .end_day = 5.0 * i - 0.25});
  const auto equal = [](float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for (const int day : {10, 40, 80}) {
    Dataset later = whole, before = whole;
    for (Unit& unit : later.units) {
      std::erase_if(unit.faults, [&](const Fault& fault) { return fault.day > day; });
      // Each unit's in another way, so that no median hides it.
      for (int bin = day; bin <= 100; ++bin) unit.mean[bin] = unit.peak[bin] = -1000 * unit.mean[100 - bin];
    }
    before.units[3].mean[day - 1] = 1e6F;
    const Rows rows = rows_of(whole, {}, {static_cast<double>(day)});
    const Rows then = rows_of(later, {}, {static_cast<double>(day)});
    ASSERT_EQ(rows.values.size(), then.values.size());
    for (std::size_t i = 0; i < rows.values.size(); ++i) {
      EXPECT_PRED2(equal, rows.values[i], then.values[i]) << "column " << i % rows.width << " on day " << day;
    }
    const Rows other = rows_of(before, {}, {static_cast<double>(day)});
    EXPECT_NE(levels_of(rows, 3)[0], levels_of(other, 3)[0]) << "the day before is seen";
    EXPECT_NE(rows.row(3).back(), other.row(3).back());
  }
}

TEST(PredictRows, TrainingSeesNoOutcomeOfLaterDays) {
  Dataset data = data_of({});
  data.units.clear();
  for (int i = 0; i < 40; ++i) {
    data.units.push_back({.name = std::to_string(i), .stays = {{.begin_day = 0, .end_day = 100}}});
    for (int fault = 1; fault < 10; ++fault) data.units.back().faults.push_back({.day = 10.0 * fault + i * 0.1});
  }
  const Task task{.lead_days = 1, .horizon_days = 9};
  const Layout layout = layout_of(data, "");
  const Rows rows = rows_at(data, layout, task, every(0, 100, 1));
  const TrainingSet set = training_set(rows, layout, task, 20, 60, [](std::uint32_t unit) { return unit % 2 == 0; });
  ASSERT_FALSE(set.chosen.empty());
  for (const std::size_t row : set.chosen) {
    EXPECT_GE(rows.info[row].day, 20);
    EXPECT_LE(rows.info[row].day, 50);
    EXPECT_EQ(rows.info[row].unit % 2, 0U);
  }
  const Error error = thrown_by([&] { training_set(rows, layout, task, 0, 5, [](std::uint32_t) { return true; }); });
  EXPECT_EQ(error.kind(), "predict.unknown");
}

TEST(PredictRows, AModelsColumnsMustBeThere) {
  const Dataset data = data_of({{.day = 50, .end_day = 50}});
  Layout layout = layout_of(data, "");
  layout.metrics.emplace_back("power");
  const Error error = thrown_by([&] { rows_at(data, layout, {}, std::vector<double>{50}); });
  EXPECT_EQ(error.kind(), "predict.columns");
  EXPECT_EQ(error.message(), "cannot know: the data have no metric 'power'");
  EXPECT_EQ(layout_of(data, "temp").metrics, std::vector<std::string>{});
}

TEST(PredictRows, EveryColumnHasAName) {
  const Layout layout{.kinds = {"GPU"}, .facts = {"age"}, .metrics = {"temp", "power"}};
  const std::vector<Column> columns = layout.columns();
  ASSERT_EQ(columns.size(), layout.width());
  EXPECT_EQ(columns[kMonth].name, "faults in the last 30 days");
  EXPECT_EQ(columns[layout.table_columns()].name, "the course of faults");
  EXPECT_NE(columns[layout.table_columns() - 1].group, columns[layout.table_columns()].group);
}

}  // namespace
}  // namespace ms::predict
