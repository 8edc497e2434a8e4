// Where groups meet, and what a ring of them carries.
#include "cost/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace ms::cost {
namespace {

using ::testing::HasSubstr;

// 4 ranks on a node, 2 nodes under a leaf switch: ranks 0 to 7 are under the first.
Cluster cluster() {
  Cluster cluster;
  cluster.node = {.ranks = 4, .cores = 0, .gb_s = 50, .latency_s = 1e-6, .step_s = 0};
  cluster.network = {.gb_s = 20, .latency_s = 5e-6, .nodes_per_leaf = 2, .spine_share = 0.5, .spine_latency_s = 9e-6};
  return cluster;
}

TEST(Paths, OfTheLongestHop) {
  struct Case {
    std::vector<int> ranks;
    Meet meet;
    double hop_s, gb_s;
  };
  const Case cases[] = {
      {{0, 1}, Meet::node, 1e-6, 50},
      {{3, 0}, Meet::node, 1e-6, 50},
      {{4, 5, 6, 7}, Meet::node, 1e-6, 50},
      {{3, 4}, Meet::leaf, 5e-6, 20},
      {{4, 3}, Meet::leaf, 5e-6, 20},
      {{0, 1, 4, 5}, Meet::leaf, 5e-6, 40},              // two cards on each node
      {{0, 1, 2, 4}, Meet::leaf, 5e-6, 20},              // one of them has one
      {{4, 0, 1, 2}, Meet::leaf, 5e-6, 20},              // whatever the order
      {{0, 1, 2, 3, 4, 5, 6, 7}, Meet::leaf, 5e-6, 50},  // four cards are more than the links inside
      {{8, 15}, Meet::leaf, 5e-6, 20},
      {{7, 8}, Meet::spine, 9e-6, 10},
      {{12, 0}, Meet::spine, 9e-6, 10},
      {{0, 4, 8, 12}, Meet::spine, 9e-6, 10},
      {{0, 2, 4, 6, 8, 10, 12, 14}, Meet::spine, 9e-6, 20},
      {{0, 1, 2, 3, 8, 9, 10, 11}, Meet::spine, 9e-6, 40},
  };
  for (const Case& c : cases) {
    const Path path = path_of(cluster(), c.ranks, "a group");
    const std::string what = testing::PrintToString(c.ranks);
    EXPECT_EQ(path.meet, c.meet) << what;
    EXPECT_DOUBLE_EQ(path.hop_s, c.hop_s) << what;
    EXPECT_DOUBLE_EQ(path.bytes_per_s, c.gb_s * 1e9) << what;
  }
}

// Pieces to other nodes pass a member's own card, whatever other members' cards carry.
TEST(Paths, OfTheMostPiecesThroughACard) {
  struct Case {
    std::vector<int> ranks;
    double gb_s;
  };
  const Case cases[] = {
      {{0, 1, 2, 3}, 50},
      {{3, 4}, 20},
      {{0, 1, 4, 5}, 3 * 20 / 2.0},              // two of three other pieces leave the node
      {{0, 1, 2, 4}, 20},                        // of the member that is alone on its node all do
      {{0, 1, 2, 3, 4, 5, 6, 7}, 7 * 20 / 4.0},  // four of seven
      {{0, 1, 2, 3, 8, 9, 10, 11}, 7 * 10 / 4.0},
  };
  for (const Case& c : cases)
    EXPECT_DOUBLE_EQ(path_of(cluster(), c.ranks, "a group").pieces_per_s, c.gb_s * 1e9)
        << testing::PrintToString(c.ranks);
  Cluster slow_inside = cluster();
  slow_inside.node.gb_s = 10;
  EXPECT_DOUBLE_EQ(path_of(slow_inside, std::vector{0, 1, 2, 3, 4, 5, 6, 7}, "a group").pieces_per_s, 1e10 * 7 / 3);
}

TEST(Paths, OneLeafSwitchForAllHasNoSpine) {
  Cluster flat = cluster();
  flat.network.nodes_per_leaf = 0;
  const Path path = path_of(flat, std::vector{0, 4000}, "a group");
  EXPECT_EQ(path.meet, Meet::leaf);
  EXPECT_DOUBLE_EQ(path.hop_s, 5e-6);
  EXPECT_DOUBLE_EQ(path.bytes_per_s, 20e9);
}

TEST(Paths, CollisionsTakeFromTheCardsAlone) {
  EXPECT_DOUBLE_EQ(path_of(cluster(), std::vector{3, 4}, "a group", 0.25).bytes_per_s, 5e9);
  EXPECT_DOUBLE_EQ(path_of(cluster(), std::vector{7, 8}, "a group", 0.5).bytes_per_s, 5e9);
  EXPECT_DOUBLE_EQ(path_of(cluster(), std::vector{0, 1}, "a group", 0.5).bytes_per_s, 50e9) << "inside a node";
  const std::vector<int> four_cards{0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_DOUBLE_EQ(path_of(cluster(), four_cards, "a group", 0.75).bytes_per_s, 50e9) << "the links inside limit it";
  EXPECT_DOUBLE_EQ(path_of(cluster(), four_cards, "a group", 0.5).bytes_per_s, 40e9);
  EXPECT_DOUBLE_EQ(path_of(cluster(), four_cards, "a group", 0.5).pieces_per_s, 7 * 10e9 / 4);
}

TEST(Paths, AHopOverTheSpineIsNeverShorter) {
  Cluster unsaid = cluster();
  unsaid.network.spine_latency_s = 0;
  EXPECT_DOUBLE_EQ(path_of(unsaid, std::vector{0, 8}, "a group").hop_s, 5e-6);
}

TEST(Paths, RefusalsNameTheMissingLink) {
  struct Case {
    double node, network;
    std::vector<int> ranks;
    const char *observed, *key;  // nullptr: accepted
  };
  const Case cases[] = {
      {0, 20, {0, 3}, "no link inside a node", "node.rate"},
      {300, 0, {0, 9}, "nodes 0 to 2", "network.rate"},
      {0, 0, {4, 3}, "no link between nodes", "network.rate"},
      {0, 20, {0, 4}, nullptr, nullptr},  // nothing of it stays in the node
      {300, 0, {4, 7}, nullptr, nullptr},
  };
  for (const Case& c : cases) {
    Cluster lacking = cluster();
    lacking.node.gb_s = c.node;
    lacking.network.gb_s = c.network;
    try {
      path_of(lacking, c.ranks, "group tp[dp 0]");
      EXPECT_EQ(c.observed, nullptr) << c.key;
    } catch (const Error& error) {
      ASSERT_NE(c.observed, nullptr) << error.message();
      EXPECT_EQ(error.kind(), "cluster.link");
      EXPECT_EQ(error.blame(), Blame::user);
      EXPECT_THAT(error.message(), HasSubstr("group tp[dp 0]"));
      EXPECT_THAT(error.message(), HasSubstr(c.observed));
      EXPECT_THAT(error.hint(), HasSubstr(c.key));
    }
  }
}

constexpr double kHop = 1e-6;
constexpr Path kPath{.meet = Meet::leaf, .hop_s = kHop, .bytes_per_s = 1e9, .pieces_per_s = 5e8};

TEST(Traffic, OfARing) {
  // Large: a part of it is far more than a hop's worth of bytes, a thousand.
  const double bytes = 1e9;
  for (const int n : {2, 3, 4, 8, 64, 1000}) {
    const double steps = n - 1, part = bytes / n, levels = std::ceil(std::log2(n));
    struct Case {
      Collective kind;
      double bytes, hops;
    };
    const Case cases[] = {
        {Collective::all_reduce, 2 * steps * part, 2 * steps},  // each of 2 (n - 1) steps passes a part on
        {Collective::reduce_scatter, steps * part, steps},
        {Collective::all_gather, steps * part, steps},
        {Collective::all_to_all, steps * part, 1},
        {Collective::broadcast, bytes, levels},  // the pipeline fills along a tree, then the whole passes every link
    };
    for (const Case& c : cases) {
      const Traffic traffic = traffic_of(c.kind, bytes, n, kPath);
      EXPECT_NEAR(traffic.bytes / c.bytes, 1, 1e-12) << n << " " << static_cast<int>(c.kind);
      EXPECT_NEAR(traffic.latency_s, c.hops * kHop, 1e-15) << n << " " << static_cast<int>(c.kind);
      const double rate = c.kind == Collective::all_to_all ? 5e8 : 1e9;
      EXPECT_NEAR(traffic.transfer_s / (c.bytes / rate), 1, 1e-12) << n << " " << static_cast<int>(c.kind);
    }
  }
}

TEST(Traffic, OfTwoRanks) {
  for (const double bytes : {1.0, 1e9}) {
    const Traffic traffic = traffic_of(Collective::point_to_point, bytes, 2, kPath);
    EXPECT_EQ(traffic.bytes, bytes);
    EXPECT_EQ(traffic.latency_s, kHop);
  }
}

TEST(Traffic, ABarrierIsUpAndDownATree) {
  for (const auto& [n, hops] : {std::pair{2, 2}, {3, 4}, {4, 4}, {5, 6}, {8, 6}, {9, 8}, {12288, 28}}) {
    const Traffic traffic = traffic_of(Collective::barrier, 0, n, kPath);
    EXPECT_EQ(traffic.bytes, 0);
    EXPECT_NEAR(traffic.latency_s, hops * kHop, 1e-15) << n;
  }
}

TEST(Traffic, SmallMessagesTakeATree) {
  for (const auto& [n, levels] : {std::pair{2, 1}, {3, 2}, {5, 3}, {8, 3}, {9, 4}, {64, 6}, {1000, 10}, {12288, 14}}) {
    for (const Collective kind : {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather}) {
      const Traffic traffic = traffic_of(kind, 8, n, kPath);
      const int hops = std::min(levels, n - 1) * (kind == Collective::all_reduce ? 2 : 1);
      EXPECT_NEAR(traffic.latency_s, hops * kHop, 1e-15) << n << " " << static_cast<int>(kind);
      EXPECT_GT(traffic.bytes, 0);
    }
  }
  // A part of a hop's worth, 1000 bytes, is where a ring begins.
  EXPECT_NEAR(traffic_of(Collective::all_gather, 64 * 999.0, 64, kPath).latency_s, 6 * kHop, 1e-15);
  EXPECT_NEAR(traffic_of(Collective::all_gather, 64 * 1001.0, 64, kPath).latency_s, 63 * kHop, 1e-15);
}

}  // namespace
}  // namespace ms::cost
