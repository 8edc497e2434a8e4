// Rates of small cases that were computed by hand.
#include "clos/fair_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ms::clos {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

Loads loads_of(const std::vector<std::vector<Load>>& channels) {
  Loads loads;
  for (const std::vector<Load>& channel : channels) {
    loads.loads.insert(loads.loads.end(), channel.begin(), channel.end());
    loads.end_channel();
  }
  return loads;
}

TEST(FairShare, ALinkIsDividedEvenly) {
  EXPECT_THAT(fair_rates(std::vector{9.0}, loads_of({{{0, 1}}, {{0, 1}}, {{0, 1}}})), ElementsAre(3, 3, 3));
}

TEST(FairShare, WhatASlowChannelLeavesOthersTake) {
  const std::vector<double> capacity{10, 4};
  EXPECT_THAT(fair_rates(capacity, loads_of({{{0, 1}}, {{0, 1}, {1, 1}}, {{1, 1}}})), ElementsAre(8, 2, 2));
}

TEST(FairShare, ThreeBottlenecks) {
  // Links of 3, 10 and 20: the first holds two channels at 1.5, the second the third one at 8.5, the last the fourth.
  const std::vector<double> capacity{3, 10, 20};
  const auto rates = fair_rates(capacity, loads_of({{{0, 1}, {1, 1}}, {{0, 1}}, {{1, 1}, {2, 1}}, {{2, 1}}}));
  EXPECT_THAT(rates, ElementsAre(DoubleEq(1.5), DoubleEq(1.5), DoubleEq(8.5), DoubleEq(11.5)));
}

TEST(FairShare, FlowsOfAChannelProceedTogether) {
  // A ring that passes the first link twice; a connection of two queue pairs, one of which shares a link.
  EXPECT_THAT(fair_rates(std::vector{10.0}, loads_of({{{0, 1}, {0, 1}}})), ElementsAre(5));
  const std::vector<double> capacity{4, 10};
  EXPECT_THAT(fair_rates(capacity, loads_of({{{0, 0.5}, {1, 0.5}}, {{0, 1}}})),
              ElementsAre(DoubleEq(4 / 1.5), DoubleEq(4 / 1.5)));
}

TEST(FairShare, NothingLimitsAChannelWithoutALoad) {
  EXPECT_THAT(fair_rates(std::vector{1.0}, loads_of({{}, {{0, 1}}})), ElementsAre(HUGE_VAL, 1));
  EXPECT_TRUE(fair_rates({}, Loads{}).empty());
}

}  // namespace
}  // namespace ms::clos
