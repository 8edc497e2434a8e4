// Slow nodes and pairs among many, found by tests of groups that are as slow as their slowest member.
#include "net/judge/group_search.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

namespace ms::net {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Nodes = GroupSearch::Nodes;

struct Fabric {
  explicit Fabric(unsigned seed) : random(seed) {}
  std::set<int> slow;
  std::set<std::pair<int, int>> slow_together;
  std::function<double(const Nodes&)> also = [](const Nodes&) { return 1.0; };

  double seconds(const Nodes& group) {
    const std::set<int> in(group.begin(), group.end());
    EXPECT_EQ(in.size(), group.size());
    double times = 1;
    for (const int node : group)
      if (slow.contains(node)) times = 2;
    for (const auto& [a, b] : slow_together)
      if (in.contains(a) && in.contains(b)) times = 2;
    return 0.01 * std::max(times, also(group)) * (1 + 0.05 * std::abs(std::normal_distribution<double>()(random)));
  }
  GroupSearch search(int nodes) {
    GroupSearch search(nodes, 1.43);
    while (true) {
      const std::vector<Nodes>& groups = search.next();
      if (groups.empty()) return search;
      std::set<int> busy;
      std::vector<double> times;
      for (const Nodes& group : groups) {
        for (const int node : group) EXPECT_TRUE(busy.insert(node).second) << "in two groups of a round";
        times.push_back(seconds(group));
      }
      search.take(times);
    }
  }
  std::mt19937 random;
};

std::vector<Nodes> groups_of(const GroupSearch& search) {
  std::vector<Nodes> groups;
  for (const GroupSearch::Slow& slow : search.found()) groups.push_back(slow.nodes);
  std::ranges::sort(groups);
  return groups;
}

TEST(GroupSearch, FindsKSlowNodesInTestsThatGrowWithKAndTheLogarithm) {
  for (const int nodes : {2, 3, 8, 33, 1024}) {
    for (const int k : {0, 1, 2, 4, 8}) {
      if (2 * k > nodes / 2) continue;  // most of the first pairs should be good
      for (unsigned seed = 0; seed < 20; ++seed) {
        Fabric fabric(seed);
        while (static_cast<int>(fabric.slow.size()) < k)
          fabric.slow.insert(std::uniform_int_distribution<int>(0, nodes - 1)(fabric.random));
        const GroupSearch search = fabric.search(nodes);
        std::vector<Nodes> expected;
        for (const int node : fabric.slow) expected.push_back({node});
        ASSERT_EQ(groups_of(search), expected) << nodes << " nodes, seed " << seed;
        // 8 references, the whole, two halves a level for each, and up to 5 tests of every node of the last pairs.
        ASSERT_LE(search.tests(), 9 + k * (2 * std::ceil(std::log2(nodes)) + 10));
        ASSERT_LE(search.rounds(), 2 + std::ceil(std::log2(nodes)) + 2 * 5 * std::max(1, k));
      }
    }
  }
}

TEST(GroupSearch, TwoThatAreSlowTogetherOnlyAreAPair) {
  Fabric fabric(1);
  fabric.slow_together = {{4, 5}};
  EXPECT_THAT(groups_of(fabric.search(16)), ElementsAre(Nodes{4, 5}));
}

TEST(GroupSearch, WhatIsSlowOnlyAsAWholeIsToldAsAWhole) {
  Fabric fabric(1);
  fabric.also = [](const Nodes& group) { return group.size() > 4 ? 3.0 : 1.0; };  // a limit that eight nodes share
  EXPECT_THAT(groups_of(fabric.search(8)), ElementsAre(Nodes{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(GroupSearch, ABadMomentIsForgiven) {
  Fabric fabric(1);
  int calls = 0;
  fabric.also = [&](const Nodes& group) { return group.size() == 64 && calls++ == 0 ? 5.0 : 1.0; };
  EXPECT_THAT(groups_of(fabric.search(64)), IsEmpty());
}

TEST(GroupSearch, WhereNobodyIsGoodAllAreTold) {
  Fabric fabric(1);
  fabric.also = [tests = 0](const Nodes&) mutable { return ++tests <= 1 ? 1.0 : 3.0; };  // only the first pair was
  const GroupSearch search = fabric.search(4);
  EXPECT_FALSE(search.found().empty());
}

}  // namespace
}  // namespace ms::net
