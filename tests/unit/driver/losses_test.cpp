#include "driver/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ms::driver {
namespace {

using testing::HasSubstr;

// Four nodes that all talk to each other: 100 segments each way in the last seconds.
class FourNodes : public testing::Test {
 protected:
  static constexpr int kNodes = 4;
  void SetUp() override {
    for (const std::string& node : names_) losses_.hear(node, {.addresses = {"10.0.0." + node.substr(1)}});
  }
  // Of what `from` sends to `to`, so many were sent again.
  void loses(int from, int to, std::int64_t again, int looks = 5) {
    reports_[from].losses.push_back(
        {.peer = fmt::format("10.0.0.{}", to), .sent = 100 + again, .again = again, .looks = looks});
    reports_[from].segments += again;
  }
  void loses_both_ways(int node, std::int64_t again, int looks = 5) {
    for (int other = 1; other <= kNodes; ++other) {
      if (other == node) continue;
      loses(node, other, again, looks);
      loses(other, node, again, looks);
    }
  }
  std::string accused(const std::vector<std::string>& nodes = {"n1", "n2", "n3", "n4"}) {
    for (int i = 1; i <= kNodes; ++i) losses_.hear(names_[static_cast<std::size_t>(i - 1)], reports_[i]);
    const std::optional<LossyNode> lossy = losses_.lossy(nodes);
    why_ = lossy ? lossy->why : "";
    return lossy ? lossy->node : "";
  }

  const std::vector<std::string> names_{"n1", "n2", "n3", "n4"};
  Losses losses_;
  std::map<int, Report> reports_{
      {1, {.segments = 300}}, {2, {.segments = 300}}, {3, {.segments = 300}}, {4, {.segments = 300}}};
  std::string why_;
};

TEST_F(FourNodes, AreWellWhereNothingIsLost) { EXPECT_EQ(accused(), ""); }

TEST_F(FourNodes, ANodeThatLosesAFifthBothWaysIsFound) {
  loses_both_ways(2, 25);
  EXPECT_EQ(accused(), "n2");
  EXPECT_THAT(why_, HasSubstr("n2, 20 % were sent again (3 other nodes see it), and 0.0 % of all others"));
}

TEST_F(FourNodes, ANodeOfWhichNothingIsHeardIsFoundByWhatOthersSendIt) {
  for (const int other : {1, 3, 4}) loses(other, 2, 10);
  reports_[2] = {};
  EXPECT_EQ(accused(), "n2");
}

TEST_F(FourNodes, ALinkBetweenTwoAccusesNeither) {
  loses(1, 2, 50);
  loses(2, 1, 50);
  EXPECT_EQ(accused(), "");
}

TEST_F(FourNodes, AFabricThatLosesEverywhereAccusesNobody) {
  for (int node = 1; node <= kNodes; ++node) loses_both_ways(node, 10);
  EXPECT_EQ(accused(), "");
}

TEST_F(FourNodes, TwoLossyNodesAccuseNobody) {
  loses_both_ways(2, 25);
  loses_both_ways(3, 25);
  EXPECT_EQ(accused(), "");
}

TEST_F(FourNodes, APauseOrSomeSegmentsAccuseNobody) {
  loses_both_ways(2, 25, 2);
  EXPECT_EQ(accused(), "") << "in two looks only";
  for (auto& [node, report] : reports_) report = {.segments = 30000};
  loses_both_ways(2, 25);
  EXPECT_EQ(accused(), "") << "a small share of what is sent";
}

TEST_F(FourNodes, WhereOnlyOneNodeTalksItCannotBeTold) {
  for (const int other : {2, 3, 4}) {
    reports_[other].segments = 0;
    loses(1, other, 30);
  }
  EXPECT_EQ(accused(), "");
}

TEST_F(FourNodes, NodesThatAreNotInTheRunAccuseNobody) {
  for (const int other : {3, 4}) loses(2, other, 30);
  EXPECT_EQ(accused({"n1", "n2"}), "");
  losses_.hear("n1", {.segments = 10, .losses = {{.peer = "192.168.0.1", .sent = 10, .again = 10, .looks = 8}}});
  EXPECT_FALSE(losses_.lossy(names_) && losses_.lossy(names_)->node == "n1") << "a peer that is no node";
}

}  // namespace
}  // namespace ms::driver
