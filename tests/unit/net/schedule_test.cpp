#include "net/measure/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace ms::net {
namespace {

// No node twice in a round; how often each pair is there at all.
std::multiset<Pair> pairs_of(const std::vector<Round>& rounds) {
  std::multiset<Pair> pairs;
  for (const Round& round : rounds) {
    std::set<int> busy;
    for (const auto& [a, b] : round) {
      EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second);
      pairs.emplace(std::min(a, b), std::max(a, b));
    }
  }
  return pairs;
}

TEST(Schedule, RoundRobinHasEveryPairOnceInTheFewestRounds) {
  for (int n = 2; n <= 33; ++n) {
    const std::vector<Round> rounds = round_robin(n);
    EXPECT_EQ(rounds.size(), static_cast<std::size_t>(n % 2 == 0 ? n - 1 : n));
    const std::multiset<Pair> pairs = pairs_of(rounds);
    EXPECT_EQ(pairs.size(), static_cast<std::size_t>(n * (n - 1) / 2));
    EXPECT_EQ(std::set<Pair>(pairs.begin(), pairs.end()).size(), pairs.size());
  }
}

TEST(Schedule, QuickCoverHasEveryNode) {
  for (int n = 2; n <= 9; ++n) {
    const std::vector<Round> rounds = quick_cover(n);
    EXPECT_EQ(rounds.size(), static_cast<std::size_t>(1 + n % 2));
    std::set<int> nodes;
    for (const Pair& pair : pairs_of(rounds)) nodes.insert({pair.first, pair.second});
    EXPECT_EQ(nodes.size(), static_cast<std::size_t>(n));
  }
}

TEST(Schedule, RingShiftsSendAndReceiveOnceEachAndMeetAll) {
  const std::vector<Round> rounds = ring_shifts(5);
  ASSERT_EQ(rounds.size(), 4U);
  std::set<Pair> all;
  for (const Round& round : rounds) {
    std::set<int> from, to;
    for (const Pair& pair : round) {
      EXPECT_TRUE(from.insert(pair.first).second && to.insert(pair.second).second);
      all.insert(pair);
    }
    EXPECT_EQ(round.size(), 5U);
  }
  EXPECT_EQ(all.size(), 20U);
}

TEST(Schedule, ByDistanceKeepsDistancesApart) {
  const auto leaf = [](int node) { return node / 4; };
  const auto pod = [](int node) { return node / 8; };
  const auto distance = [&](int a, int b) { return leaf(a) == leaf(b) ? 0 : pod(a) == pod(b) ? 1 : 2; };
  std::vector<Round> all;
  int before = -1;
  for (const DistanceRounds& near : by_distance(16, distance)) {
    EXPECT_GT(near.distance, before);
    before = near.distance;
    for (const Round& round : near.rounds) {
      for (const auto& [a, b] : round) EXPECT_EQ(distance(a, b), near.distance);
      all.push_back(round);
    }
  }
  EXPECT_EQ(pairs_of(all).size(), 120U);
  EXPECT_LE(all.size(), 3U + 5U + 10U);  // as many as there are partners, and little more
}

TEST(Schedule, ATakenRoundIsDisjointAndTheRestIsLeft) {
  std::vector<Pair> wanted{{0, 1}, {1, 2}, {2, 3}, {0, 3}};
  EXPECT_EQ(take_round(wanted, 4), (Round{{0, 1}, {2, 3}}));
  EXPECT_EQ(wanted, (std::vector<Pair>{{1, 2}, {0, 3}}));
}

}  // namespace
}  // namespace ms::net
