#include "clos/step_flows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace ms::clos {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> axes(const std::vector<StepCollective>& collectives) {
  std::vector<std::string> names;
  for (const StepCollective& collective : collectives) names.push_back(collective.axis);
  return names;
}

TEST(StepFlows, RingsPassTheHostsOfTheirGroupOnTheNicOfEachMember) {
  const auto flows = step_flows({.dp = 3, .tp = 8}, Fabric{});
  ASSERT_THAT(axes(flows), ElementsAre("dp"));
  ASSERT_EQ(flows[0].channels.size(), 8U);
  for (int i = 0; i < 8; ++i) {
    EXPECT_THAT(flows[0].channels[static_cast<std::size_t>(i)].transfers,
                ElementsAre(Transfer{0, i, 1, i}, Transfer{1, i, 2, i}, Transfer{2, i, 0, i}));
  }
}

TEST(StepFlows, MembersOnOneHostMakeARingEach) {
  const auto flows = step_flows({.dp = 8, .tp = 2}, Fabric{});
  ASSERT_THAT(axes(flows), ElementsAre("dp"));
  ASSERT_EQ(flows[0].channels.size(), 8U) << "two groups of four members on each of two hosts";
  EXPECT_THAT(flows[0].channels[1].transfers, ElementsAre(Transfer{0, 2, 1, 2}, Transfer{1, 2, 0, 2}));
}

TEST(StepFlows, RanksShareNics) {
  Fabric fabric;
  fabric.host.nics = 4;
  const auto flows = step_flows({.dp = 2, .tp = 8}, fabric);
  EXPECT_EQ(flows[0].channels[6].transfers[0], (Transfer{0, 3, 1, 3}));
  EXPECT_EQ(flows[0].channels[7].transfers[0], (Transfer{0, 3, 1, 3}));
}

TEST(StepFlows, PipelinesAreOpenUnlessTheyAreInterleaved) {
  const auto open = step_flows({.dp = 1, .pp = 3, .tp = 8}, Fabric{});
  ASSERT_THAT(axes(open), ElementsAre("pp"));
  ASSERT_EQ(open[0].channels.size(), 16U);
  EXPECT_THAT(open[0].channels[9].transfers, ElementsAre(Transfer{1, 1, 2, 1}));
  const auto ring = step_flows({.dp = 1, .pp = 3, .tp = 8, .chunks = 2}, Fabric{});
  EXPECT_EQ(ring[0].channels.size(), 24U);
  EXPECT_THAT(ring[0].channels[23].transfers, ElementsAre(Transfer{2, 7, 0, 7}));
}

// With whole experts on ranks of tp, a group of ep can be the ranks of a host, and edp one rank of each.
TEST(StepFlows, FoldedExpertsCrossHostsAsTheirGroupsDo) {
  const auto flows = step_flows({.dp = 2, .tp = 8, .ep = 8, .expert_tp = 1}, Fabric{});
  ASSERT_THAT(axes(flows), ElementsAre("dp", "edp"));
  EXPECT_THAT(flows[1].channels[3].transfers, ElementsAre(Transfer{0, 3, 1, 3}, Transfer{1, 3, 0, 3}));
  EXPECT_THAT(axes(step_flows({.dp = 2, .tp = 8, .ep = 16, .expert_tp = 1}, Fabric{})), ElementsAre("dp", "ep"));
  const auto whole = step_flows({.dp = 2, .tp = 8, .ep = 1, .expert_tp = 1}, Fabric{});
  ASSERT_THAT(axes(whole), ElementsAre("dp", "edp"));
  EXPECT_EQ(whole[1].channels.size(), 8U);
}

TEST(StepFlows, AllToAllsLeaveOnTheRailOfTheReceiverWithPxn) {
  Fabric fabric;
  const mesh::MeshConfig mesh{.dp = 16, .ep = 16};
  for (const bool pxn : {true, false}) {
    fabric.roce.pxn = pxn;
    const auto flows = step_flows(mesh, fabric);
    ASSERT_THAT(axes(flows), ElementsAre("dp", "ep"));
    ASSERT_EQ(flows[1].channels.size(), 1U);
    const std::vector<Transfer>& transfers = flows[1].channels[0].transfers;
    EXPECT_EQ(transfers.size(), 16U * 8U);
    EXPECT_EQ(std::ranges::count_if(transfers, [](const Transfer& t) { return t.from_nic == t.to_nic; }),
              pxn ? 128 : 16);
  }
}

TEST(StepFlows, ExpertsReplicasAndContextsHaveAxesOfTheirOwn) {
  EXPECT_THAT(axes(step_flows({.dp = 4, .tp = 8, .ep = 2}, Fabric{})), ElementsAre("dp", "edp", "ep"));
  const auto gathers = step_flows({.dp = 1, .tp = 8, .cp = 2}, Fabric{});
  ASSERT_THAT(axes(gathers), ElementsAre("dp", "cp"));
  EXPECT_EQ(gathers[1].channels.size(), 8U);
  EXPECT_THAT(axes(step_flows({.dp = 1, .tp = 16}, Fabric{})), ElementsAre("tp"));
}

TEST(StepFlows, WhatFitsOneHostUsesNoNetwork) {
  EXPECT_TRUE(step_flows({.dp = 2, .pp = 2, .tp = 2}, Fabric{}).empty());
}

}  // namespace
}  // namespace ms::clos
