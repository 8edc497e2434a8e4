// ms-diag golden: limits from good nodes, and who is accused after a second measurement.
#include "health/commands/golden.h"

#include <gmock/gmock.h>

#include <map>
#include <random>

#include "base/error.h"

namespace ms::health {
namespace {

using ::testing::HasSubstr;

Report report_of(const std::string& node, double gbps) {
  return {.node = node, .results = {{.code = "perf.memory", .level = 2, .measured = {{"memory", gbps, "GB/s"}}}}};
}
std::vector<Report> good_nodes(int count, double noise) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0, noise);
  std::vector<Report> reports;
  for (int i = 0; i < count; ++i) reports.push_back(report_of("g" + std::to_string(i), 100 * (1 + normal(random))));
  return reports;
}

TEST(Golden, LimitsComeFromTheNumberOfNodes) {
  EXPECT_NEAR(learn_golden(good_nodes(1, 0)).rates[0].limit(), 75, 1e-9);
  EXPECT_NEAR(learn_golden(good_nodes(7, 0)).rates[0].limit(), 75, 1e-9);
  EXPECT_NEAR(learn_golden(good_nodes(100, 0)).rates[0].limit(), 95, 1e-9);  // never closer than 5 percent
  const double wide = learn_golden(good_nodes(100, 0.03)).rates[0].limit();
  EXPECT_GT(wide, 80);
  EXPECT_LT(wide, 92);
}

TEST(Golden, ABadNodeIsNoModel) {
  std::vector<Report> reports = good_nodes(3, 0);
  reports[1].results[0].outcome = Outcome::critical;
  EXPECT_THROW(learn_golden(reports), Error);
  reports[1].results[0] = {.code = "perf.memory", .outcome = Outcome::skip};
  EXPECT_THROW(learn_golden(reports), Error);
}

TEST(Golden, FilesAreReadBackAndNonsenseIsRefused) {
  const Golden golden = learn_golden(good_nodes(9, 0.02));
  const Golden back = golden_from_json(golden_json(golden), "f");
  EXPECT_EQ(back.rates[0].limit(), golden.rates[0].limit());
  EXPECT_EQ(back.nodes.size(), 9U);
  for (const std::string bad : {"", "[]", "{\"nodes\":[]}", "{\"nodes\":[],\"rates\":[{}]}"})
    EXPECT_THROW(golden_from_json(bad, "f"), Error) << bad;
}

// A node is slow both times, one only once, one is not there the second time, and one measures nothing.
TEST(Golden, OnlyASecondMeasurementAccuses) {
  const Golden golden = learn_golden(good_nodes(20, 0.01));
  const std::map<std::string, std::vector<double>> values{
      {"good", {99, 99}}, {"slow", {70, 72}}, {"once", {60, 100}}, {"lost", {50, -1}}, {"mute", {-1, -1}}};
  std::vector<std::vector<std::string>> asked;
  const Measure measure = [&](const std::vector<std::string>& nodes, const std::string& only) {
    EXPECT_EQ(only, "perf.memory");
    asked.push_back(nodes);
    std::vector<Report> reports;
    for (const std::string& node : nodes) {
      const double value = values.at(node)[asked.size() - 1];
      reports.push_back(report_of(node, value));
      if (value < 0) reports.back().results[0] = {.code = "perf.memory", .outcome = Outcome::skip, .note = "no memory"};
    }
    return reports;
  };
  const GoldenComparison found = compare_golden(golden, {"good", "slow", "once", "lost", "mute"}, measure);
  EXPECT_THAT(asked.at(1), ::testing::ElementsAre("slow", "once", "lost"));
  ASSERT_EQ(found.accused.size(), 1U);
  EXPECT_EQ(found.accused[0].node, "slow");
  ASSERT_EQ(found.acquitted.size(), 1U);
  EXPECT_EQ(found.acquitted[0].node, "once");
  EXPECT_EQ(found.not_measured.size(), 2U);
  EXPECT_EQ(found.nagios_status(), 1);
  EXPECT_THAT(comparison_text(found), HasSubstr("slow: slow perf.memory memory: 70 and again 72 GB/s"));
  EXPECT_THAT(comparison_text(found), HasSubstr("no memory"));
  EXPECT_EQ(GoldenComparison{}.nagios_status(), 3);
}

// Nine nodes are each other's golden; one is slow both times, one once.
TEST(Golden, PeersAreComparedWithEachOther) {
  std::vector<std::string> names;
  for (int i = 0; i < 9; ++i) names.push_back("n" + std::to_string(i));
  int times = 0;
  const Measure measure = [&](const std::vector<std::string>& nodes, const std::string& only) {
    EXPECT_EQ(only, times == 0 ? "perf.*" : "perf.memory");
    std::vector<Report> reports;
    for (const std::string& node : nodes)
      reports.push_back(report_of(node, node == "n3" ? 60 : node == "n5" && times == 0 ? 70 : 100));
    ++times;
    return reports;
  };
  const GoldenComparison comparison = compare_peers(names, "perf.*", measure);
  EXPECT_EQ(times, 2);
  ASSERT_EQ(comparison.accused.size(), 1U);
  EXPECT_EQ(comparison.accused[0].node, "n3");
  ASSERT_EQ(comparison.acquitted.size(), 1U);
  EXPECT_EQ(comparison.acquitted[0].node, "n5");
  EXPECT_EQ(comparison.nagios_status(), 1);
}

TEST(Golden, TwoPeersAreNotCompared) {
  const Measure measure = [](const std::vector<std::string>& nodes, const std::string&) {
    return std::vector<Report>{report_of(nodes[0], 100), report_of(nodes[1], 10)};
  };
  const GoldenComparison comparison = compare_peers({"n0", "n1"}, "perf.*", measure);
  EXPECT_TRUE(comparison.accused.empty());
  EXPECT_THAT(comparison.not_measured.at(0), HasSubstr("too few to compare"));
  EXPECT_EQ(comparison.nagios_status(), 3);  // nothing is known
}

}  // namespace
}  // namespace ms::health
