// What the samples of a site show: counters that rise, GPUs that are hotter than their peers, nodes that are silent.
#include "health/telemetry/trends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "health/commands/telemetry_report.h"

namespace ms::health {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr double kTrendsNow_s = 1.8e9;
constexpr double kHour = 3600;

// A GPU's samples of two days, one an hour; `value` gives a column's of an hour, of 0 to 48.
Series gpu(const std::string& node, std::map<std::string, std::function<double(int)>> columns) {
  Series series{.node = node, .device = "gpu0", .facts = {{"model", "H100"}}};
  for (const auto& [name, value] : columns) series.columns.push_back(name);
  for (int hour = 0; hour <= 48; ++hour) {
    series.times.push_back(kTrendsNow_s - (48 - hour) * kHour);
    for (const auto& [name, value] : columns) series.values.push_back(static_cast<float>(value(hour)));
  }
  return series;
}

SiteTrends trends_of(const std::vector<Series>& all) {
  TrendFinder finder(kTrendsNow_s);
  for (const Series& series : all) finder.add(series.node, {series});
  return std::move(finder).finish();
}

TEST(Trends, ACounterThatGrewMoreThanTheDayBeforeRises) {
  const SiteTrends trends = trends_of({
      gpu("steady", {{"ecc_corrected", [](int hour) { return hour; }}}),
      gpu("rises", {{"ecc_corrected", [](int hour) { return hour <= 24 ? hour : 24 + 10 * (hour - 24); }}}),
      gpu("reset", {{"ecc_corrected", [](int hour) { return hour < 40 ? 1000 : 0; }}}),
      gpu("gap", {{"ecc_corrected", [](int hour) { return hour == 30 ? NAN : 5; }}}),
      gpu("level", {{"power_w", [](int hour) { return hour; }}}),
  });
  ASSERT_EQ(trends.rises.size(), 1U);
  EXPECT_EQ(trends.young, 0U);
  EXPECT_EQ(trends.rises[0].node, "rises");
  EXPECT_EQ(trends.rises[0].column, "ecc_corrected");
  EXPECT_EQ(trends.rises[0].last_day, 240);
  EXPECT_EQ(trends.rises[0].day_before, 24);
  EXPECT_THAT(trends_text(trends), HasSubstr("ecc_corrected  rises"));
}

TEST(Trends, OfLessThanTwoDaysTheDayBeforeIsNotKnown) {
  Series young = gpu("young", {{"ecc_corrected", [](int hour) { return hour; }}});
  young.times.erase(young.times.begin(), young.times.begin() + 30);
  young.values.erase(young.values.begin(), young.values.begin() + 30);
  const SiteTrends trends = trends_of({young});
  EXPECT_EQ(trends.young, 1U);
  EXPECT_THAT(trends_text(trends), HasSubstr("less than a day"));
  ASSERT_EQ(trends.rises.size(), 1U);
  EXPECT_EQ(trends.rises[0].day_before, std::nullopt);
  EXPECT_TRUE(trends_json(trends)["rises"][0]["day_before"].is_null());
}

std::vector<Series> rack(int nodes, double hot_c, double hot_busy) {
  std::vector<Series> all;
  for (int i = 0; i < nodes; ++i) {
    const bool odd_one = i == 3;
    all.push_back(gpu("n" + std::to_string(i), {{"temperature_c", [=](int) { return odd_one ? hot_c : 40 + i % 3; }},
                                                {"busy_percent", [=](int) { return odd_one ? hot_busy : 0; }}}));
  }
  return all;
}

TEST(Trends, AGpuIsHotterThanPeersThatDoTheSame) {
  const SiteTrends trends = trends_of(rack(9, 55, 0));
  ASSERT_EQ(trends.hotter.size(), 1U);
  EXPECT_EQ(trends.hotter[0].node, "n3");
  EXPECT_EQ(trends.hotter[0].state, "idle");
  EXPECT_EQ(trends.hotter[0].median, 55);
  EXPECT_EQ(trends.hotter[0].peers, 8U);
  EXPECT_TRUE(trends_of(rack(9, 46, 0)).hotter.empty());  // within five degrees of 41
}

TEST(Trends, OneThatWorksIsNotComparedWithIdleOnesNorAFewWithEachOther) {
  const SiteTrends working = trends_of(rack(10, 75, 100));
  EXPECT_TRUE(working.hotter.empty());
  EXPECT_EQ(working.compared, 9U);
  EXPECT_EQ(working.not_compared, 1U);
  const SiteTrends few = trends_of(rack(8, 75, 0));
  EXPECT_TRUE(few.hotter.empty());
  EXPECT_EQ(few.not_compared, 8U);
  EXPECT_THAT(trends_text(few), HasSubstr("not compared"));
  EXPECT_THAT(trends_text(few), testing::Not(HasSubstr("no GPU is hotter")));  // nobody knows
}

TEST(Trends, ANodeWithoutSamplesIsSilent) {
  TrendFinder finder(kTrendsNow_s);
  Series old = gpu("old", {{"power_w", [](int) { return 1; }}});
  for (double& time : old.times) time -= 2 * kHour;
  finder.add("old", {old});
  finder.add("gone", {});
  const SiteTrends trends = std::move(finder).finish();
  EXPECT_EQ(trends.nodes, 1U);
  EXPECT_THAT(trends.silent, ElementsAre(std::pair("old", kTrendsNow_s - 2 * kHour), std::pair("gone", 0.0)));
  EXPECT_THAT(trends_text(trends), HasSubstr("gone: no sample in two days"));
}

TEST(SamplesCsv, AValueALineAndNoneThatIsNotKnown) {
  EXPECT_EQ(samples_csv({.node = "n1",
                         .device = "",
                         .facts = {},
                         .columns = {"a", "b"},
                         .times = {100, 400},
                         .values = {1.5F, NAN, 2, 3}}),
            "100,n1,host,a,1.5\n400,n1,host,a,2\n400,n1,host,b,3\n");
}

}  // namespace
}  // namespace ms::health
