// Faults that are put into a fabric of numbers are named, and nothing else is.
#include "net/judge/locate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "fake_fabric.h"

namespace ms::net {
namespace {

using test::culprits;
using test::FakeFabric;
using testing::ElementsAre;
using testing::IsEmpty;

struct Case {
  std::string name;
  // Puts a fault in, and says what the fault should be.
  std::function<std::vector<Culprit>(FakeFabric&, int nodes)> inject;
  Symptom symptom = Symptom::bandwidth;
  bool grouped = false;
};

// So many nodes below each leaf switch, and all of those below one that is not known.
Layout leaves_of(int nodes, int nodes_each) {
  Layout layout;
  for (int node = 0; node < nodes; ++node) layout.leaf_of.push_back(node / nodes_each);
  layout.above.assign(static_cast<std::size_t>((nodes + nodes_each - 1) / nodes_each), Layout::kNone);
  return layout;
}

std::vector<Case> cases() {
  return {
      {"slow node",
       [](FakeFabric& fabric, int nodes) -> std::vector<Culprit> {
         const int bad = fabric.pick(nodes);
         fabric.way_fault = [bad](int from, int to, Way& way) {
           if (from == bad || to == bad) way.gbps *= 0.5;
         };
         return {{.kind = Kind::node, .a = bad}};
       }},
      {"slow sender",
       [](FakeFabric& fabric, int nodes) -> std::vector<Culprit> {
         const int bad = fabric.pick(nodes);
         fabric.way_fault = [bad](int from, int, Way& way) {
           if (from == bad) way.gbps *= 0.3;
         };
         return {{.kind = Kind::sending, .a = bad}};
       }},
      {"slow receiver",
       [](FakeFabric& fabric, int nodes) -> std::vector<Culprit> {
         const int bad = fabric.pick(nodes);
         fabric.way_fault = [bad](int, int to, Way& way) {
           if (to == bad) way.gbps *= 0.3;
         };
         return {{.kind = Kind::receiving, .a = bad}};
       }},
      {"slow pair",
       [](FakeFabric& fabric, int nodes) -> std::vector<Culprit> {
         const int a = fabric.pick(nodes - 1), b = a + 1 + fabric.pick(nodes - a - 1);
         fabric.way_fault = [a, b](int from, int to, Way& way) {
           if (std::minmax(from, to) == std::minmax(a, b)) way.gbps *= 0.5;
         };
         return {{.kind = Kind::link, .a = a, .b = b}};
       }},
      {"slow direction of a pair",
       [](FakeFabric& fabric, int nodes) -> std::vector<Culprit> {
         const int a = fabric.pick(nodes), b = (a + 1 + fabric.pick(nodes - 1)) % nodes;
         fabric.way_fault = [a, b](int from, int to, Way& way) {
           if (from == a && to == b) way.gbps *= 0.5;
         };
         return {{.kind = Kind::direction, .a = a, .b = b}};
       }},
      {"a node that loses one of a thousand",
       [](FakeFabric& fabric, int nodes) -> std::vector<Culprit> {
         const int bad = fabric.pick(nodes);
         fabric.way_fault = [bad, &fabric](int from, int to, Way& way) {
           if (from == bad || to == bad) fabric.lose(way, 1);
         };
         return {{.kind = Kind::node, .a = bad}};
       },
       Symptom::loss},
      {"a late node",
       [](FakeFabric& fabric, int nodes) -> std::vector<Culprit> {
         const int bad = fabric.pick(nodes);
         fabric.pair_fault = [bad](PairResult& result) {
           if (result.a == bad || result.b == bad) result.least_us += 400;
         };
         return {{.kind = Kind::node, .a = bad}};
       },
       Symptom::latency},
      {"a node whose MTU is small",
       [](FakeFabric& fabric, int nodes) -> std::vector<Culprit> {
         const int bad = fabric.pick(nodes);
         fabric.way_fault = [bad](int from, int to, Way& way) {
           if (from == bad) way.mtu = 1500;
           if (to == bad) way.large_pass = false;
         };
         return {{.kind = Kind::receiving, .a = bad}};
       },
       Symptom::size},
      {"a silent node",
       [](FakeFabric& fabric, int nodes) -> std::vector<Culprit> {
         const int bad = fabric.pick(nodes);
         fabric.pair_fault = [bad](PairResult& result) {
           if (result.a == bad || result.b == bad) result = test::silent(result, "no answer in time", -1);
         };
         return {{.kind = Kind::node, .a = bad}};
       },
       Symptom::silent},
      {"a node that nobody can connect to, though it connects to others",
       [](FakeFabric& fabric, int nodes) -> std::vector<Culprit> {
         const int bad = fabric.pick(nodes);
         fabric.pair_fault = [bad](PairResult& result) {
           if (result.b == bad) {
             result = test::silent(result, "connection refused", -1);
             result.there.unreached = result.error;
           }
           if (result.a == bad) result.back.unreached = "connection refused";
         };
         return {{.kind = Kind::receiving, .a = bad}};
       },
       Symptom::silent},
      {"a flapping node",
       [](FakeFabric& fabric, int nodes) -> std::vector<Culprit> {
         const int bad = fabric.pick(nodes);
         fabric.pair_fault = [bad, seen = 0](PairResult& result) mutable {
           if (result.a == bad && seen++ == 0) result.counts_a.carrier_losses = 1;
           if (result.b == bad && seen++ == 0) result.counts_b.carrier_losses = 1;
         };
         return {{.kind = Kind::node, .a = bad}};
       },
       Symptom::flap},
      {"a slow switch",
       [](FakeFabric& fabric, int nodes) -> std::vector<Culprit> {
         const int bad = fabric.pick(nodes / 2);
         fabric.way_fault = [bad](int from, int to, Way& way) {
           if ((from / 2 == bad) != (to / 2 == bad)) way.gbps *= 0.4;
         };
         return {{.kind = Kind::group, .a = bad}};
       },
       Symptom::bandwidth, true},
  };
}

TEST(Locate, NamesEveryKindOfFaultWhereverItIs) {
  constexpr int kNodes = 8, kPlacements = 20;
  for (const Case& of : cases()) {
    for (unsigned seed = 0; seed < kPlacements; ++seed) {
      SCOPED_TRACE(fmt::format("{}, placement {}", of.name, seed));
      FakeFabric fabric(kNodes, seed);
      std::vector<Culprit> injected = of.inject(fabric, kNodes);
      const Locator locator = fabric.locate({.layout = of.grouped ? leaves_of(kNodes, 2) : Layout{}});
      ASSERT_EQ(culprits(locator), injected);
      ASSERT_THAT(locator.faults()[0].symptoms, ElementsAre(of.symptom));
      ASSERT_GT(locator.faults()[0].confidence, 0.5);
      ASSERT_EQ(locator.healthy().size(), of.grouped ? kNodes - 2U : injected[0].b >= 0 ? kNodes - 2U : kNodes - 1U);
    }
  }
}

TEST(Locate, AccusesNobodyInAHealthyFabric) {
  for (const int nodes : {2, 3, 8, 33, 200}) {
    for (unsigned seed = 0; seed < 100; ++seed) {
      FakeFabric fabric(nodes, seed);
      const Locator locator = fabric.locate();
      ASSERT_THAT(culprits(locator), IsEmpty()) << nodes << " nodes, seed " << seed;
      ASSERT_EQ(locator.healthy().size(), static_cast<std::size_t>(nodes));
    }
  }
}

TEST(Locate, ABadMomentIsMeasuredAgainAndForgiven) {
  FakeFabric fabric(8, 1);
  int measured = 0;
  fabric.pair_fault = [&](PairResult& result) {
    if (result.a == 2 && result.b == 5 && measured++ == 0) result.there.gbps = 1;
  };
  EXPECT_THAT(culprits(fabric.locate()), IsEmpty());
  EXPECT_EQ(measured, 2);  // a way that carried what is normal once can do so
}

// A busy moment in the cover makes a node look slow; tests of one direction acquit it, and set aside what the cover
// saw.
TEST(Locate, ASlowPairIsFoundBesideABusyNode) {
  FakeFabric fabric(8, 1);
  fabric.pair_fault = [](PairResult& result) {
    if (result.b == 7 && result.at_once) result.there.gbps = result.back.gbps = 30;
    if (result.a == 6 && result.b == 7) result.there.gbps = result.back.gbps = 28;
  };
  EXPECT_THAT(culprits(fabric.locate()), ElementsAre(Culprit{.kind = Kind::link, .a = 6, .b = 7}));
}

TEST(Locate, ABadMomentOfANodeOfFewIsForgivenToo) {
  FakeFabric fabric(4, 1);
  int measured = 0;
  fabric.pair_fault = [&](PairResult& result) {
    if (result.a == 1 && measured++ < 3) result.least_us = 300;
  };
  EXPECT_THAT(culprits(fabric.locate()), IsEmpty());
}

// Pings between two processes that shared their CPUs with others are late, however good the network is; a late link is
// found beside them.
TEST(Locate, WaitingForACpuIsNoLatency) {
  FakeFabric fabric(4, 1);
  fabric.pair_fault = [](PairResult& result) {
    if (result.a == 0 && result.b == 1) result.least_us = 136, result.cpu_wait_us = 120;
  };
  const Locator busy = fabric.locate();
  EXPECT_THAT(culprits(busy), IsEmpty());
  EXPECT_EQ(busy.pairs_without_cpu(), 1);
  fabric.pair_fault = [](PairResult& result) {
    if (result.a == 0 && result.b == 1) result.least_us = 2000, result.cpu_wait_us = 500;
  };
  const Locator late = fabric.locate();
  EXPECT_THAT(culprits(late), ElementsAre(Culprit{.kind = Kind::link, .a = 0, .b = 1}));
  EXPECT_EQ(late.pairs_without_cpu(), 0);
}

// A slow node among four is in half of the pairs, and the pairs that are measured again are its own.
TEST(Locate, WhatIsMeasuredAgainDoesNotBecomeNormal) {
  FakeFabric fabric(4, 1);
  fabric.pair_fault = [](PairResult& result) {
    if (result.b == 3) result.there.gbps = result.back.gbps = 30, result.least_us = 300;
  };
  std::vector<PairResult> results;
  for (const int times : {1, 4})
    for (int a = 0; a < 3; ++a)
      for (int b = times == 1 ? a + 1 : 3; b < 4; ++b)
        results.insert(results.end(), times, fabric.measure(a, b, false));
  const Normal normal = normal_of(results, [](int, int) { return 0; }).front();
  EXPECT_NEAR(normal.gbps, 100, 20);
  EXPECT_NEAR(normal.latency_us, 10, 5);
}

// The acknowledgements of what a node sends have to come in by its slow side.
TEST(Locate, ASlowReceiverIsToldFromASlowNodeByOneDirectionAtATime) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    FakeFabric fabric(8, seed);
    const int bad = fabric.pick(8);
    fabric.pair_fault = [&](PairResult& result) {
      if (result.a == bad) std::swap(result.there, result.back);  // `there` is towards the bad one now
      if (result.a == bad || result.b == bad) {
        result.there.gbps *= 0.3;
        if (result.at_once) result.back.gbps *= 0.4;
      }
      if (result.a == bad) std::swap(result.there, result.back);
    };
    EXPECT_THAT(culprits(fabric.locate()), ElementsAre(Culprit{.kind = Kind::receiving, .a = bad})) << seed;
  }
}

TEST(Locate, TwoFaultsAtOnce) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    FakeFabric fabric(8, seed);
    const int slow = fabric.pick(8), a = (slow + 1 + fabric.pick(3)) % 8, b = (slow + 5 + fabric.pick(3)) % 8;
    fabric.way_fault = [&](int from, int to, Way& way) {
      if (from == slow || to == slow) way.gbps *= 0.4;
      if (std::minmax(from, to) == std::minmax(a, b)) fabric.lose(way, 10);
    };
    EXPECT_THAT(culprits(fabric.locate()),
                testing::UnorderedElementsAre(Culprit{.kind = Kind::node, .a = slow},
                                              Culprit{.kind = Kind::link, .a = std::min(a, b), .b = std::max(a, b)}))
        << seed;
  }
}

// Two leaves with half the uplinks: what is slow while others cross, too, is not slow alone.
TEST(Locate, AnOversubscribedFabricIsHealthy) {
  for (const bool is_known : {true, false}) {
    FakeFabric fabric(8, 3);
    std::size_t crossing = 0;
    const auto crosses = [](int a, int b) { return a / 4 != b / 4; };
    fabric.round_begins = [&](const Round& round) {
      crossing = static_cast<std::size_t>(
          std::ranges::count_if(round, [&](const Pair& pair) { return crosses(pair.first, pair.second); }));
    };
    fabric.way_fault = [&](int from, int to, Way& way) {
      if (crosses(from, to)) way.gbps *= std::min(1.0, 2.0 / static_cast<double>(crossing));
    };
    Locator locator = fabric.locate({.layout = is_known ? leaves_of(8, 4) : Layout{}});
    EXPECT_THAT(culprits(locator), IsEmpty());
    EXPECT_GT(locator.crowded_ways(), 0);
    EXPECT_EQ(locator.undecided_pairs(), 0);
  }
}

TEST(Locate, TwoSwitchesCannotBeToldApart) {
  FakeFabric fabric(8, 3);
  fabric.way_fault = [&](int from, int to, Way& way) {
    if (from / 4 != to / 4) way.lost = 100;
  };
  EXPECT_THAT(culprits(fabric.locate({.layout = leaves_of(8, 4)})),
              ElementsAre(Culprit{.kind = Kind::group, .a = 0, .other = 1}));
}

// 24 nodes, 4 below each of 6 leaves, 2 leaves in each of 3 pods.
TEST(Locate, ASwitchAboveLeavesIsToldFromThem) {
  Layout layout = leaves_of(24, 4);
  layout.above = {6, 6, 7, 7, 8, 8, 9, 9, 9, Layout::kNone};
  const auto in_pod = [](int node, int pod) { return node / 8 == pod; };
  for (int pod = 0; pod < 3; ++pod) {
    FakeFabric fabric(24, 5);
    fabric.way_fault = [&](int from, int to, Way& way) {
      if (in_pod(from, pod) != in_pod(to, pod)) way.gbps *= 0.4;
    };
    EXPECT_THAT(culprits(fabric.locate({.layout = layout})), ElementsAre(Culprit{.kind = Kind::group, .a = 6 + pod}));
  }
  for (int leaf = 0; leaf < 6; ++leaf) {
    FakeFabric fabric(24, 5);
    fabric.way_fault = [&](int from, int to, Way& way) {
      if ((from / 4 == leaf) != (to / 4 == leaf)) way.gbps *= 0.4;
    };
    EXPECT_THAT(culprits(fabric.locate({.layout = layout})), ElementsAre(Culprit{.kind = Kind::group, .a = leaf}));
  }
}

// A pod of one leaf: whose uplink it is cannot be told, and the one that is nearest to the nodes is named.
TEST(Locate, OfTwoSwitchesWithTheSameNodesTheLowerOneIsNamed) {
  Layout layout = leaves_of(16, 4);
  layout.above = {4, 5, 5, 5, 6, 6, Layout::kNone};
  FakeFabric fabric(16, 5);
  fabric.way_fault = [](int from, int to, Way& way) {
    if ((from < 4) != (to < 4)) way.lost = 100;
  };
  EXPECT_THAT(culprits(fabric.locate({.layout = layout})),
              ElementsAre(Culprit{.kind = Kind::group, .a = 0, .other = 5}));
}

TEST(Locate, WithTwoNodesOnlyTheLinkIsKnown) {
  FakeFabric fabric(2, 3);
  fabric.way_fault = [](int, int, Way& way) { way.lost = 100; };
  EXPECT_THAT(culprits(fabric.locate()), ElementsAre(Culprit{.kind = Kind::link, .a = 0, .b = 1}));
}

TEST(Locate, AnAgentThatIsGoneIsNamedAndItsPartnerIsNot) {
  FakeFabric fabric(8, 3);
  fabric.pair_fault = [](PairResult& result) {
    if (result.a != 3 && result.b != 3) return;
    result = test::silent(result, "n3 did not answer in time", 3);
  };
  EXPECT_THAT(culprits(fabric.locate()), ElementsAre(Culprit{.kind = Kind::node, .a = 3}));
}

// k bad nodes among a thousand: a cover, which is three rounds whatever k is, and then a number of tests that grows
// with k alone.
TEST(Locate, TestsAfterTheCoverGrowWithTheFaultsAndNotWithTheFabric) {
  for (const int nodes : {128, 1024}) {
    for (const int k : {1, 2, 4, 8}) {
      for (unsigned seed = 0; seed < (nodes == 128 ? 10 : 1); ++seed) {
        FakeFabric fabric(nodes, seed);
        std::set<int> bad;
        while (static_cast<int>(bad.size()) < k) bad.insert(fabric.pick(nodes));
        fabric.way_fault = [&](int from, int to, Way& way) {
          if (bad.contains(from) || bad.contains(to)) way.gbps *= 0.5;
        };
        const Locator locator = fabric.locate();
        std::set<int> found;
        for (const Fault& fault : locator.faults()) {
          ASSERT_EQ(fault.culprit.kind, Kind::node);
          found.insert(fault.culprit.a);
        }
        ASSERT_EQ(found, bad) << nodes << " nodes, seed " << seed;
        const std::int64_t cover = kCover * nodes / 2;
        ASSERT_LE(fabric.probes - cover, 30 * k);
        ASSERT_GT(locator.pairs_untested(), 0);
      }
    }
  }
}

}  // namespace
}  // namespace ms::net
