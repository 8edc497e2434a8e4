// Which symptoms of a node explain those of its pairs, so that a pair beside it is not named, and which do not.
#include <gmock/gmock.h>

#include "fake_fabric.h"

namespace ms::net {
namespace {

using test::culprits;
using test::FakeFabric;

// Repairing losses costs a stream its rate: by chance one way of a lossy node looks slow, too. The reverse is not so.
TEST(Explained, ALossyNodeExplainsASlowWayAndASlowNodeNoLossyOne) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    FakeFabric fabric(8, seed);
    const int bad = fabric.pick(8), other = (bad + 1 + fabric.pick(7)) % 8;
    const Culprit node{.kind = Kind::node, .a = bad};
    const Culprit link{.kind = Kind::link, .a = std::min(bad, other), .b = std::max(bad, other)};
    for (const bool is_lossy : {true, false}) {
      fabric.way_fault = [&](int from, int to, Way& way) {
        const bool of_node = from == bad || to == bad, of_link = std::minmax(from, to) == std::minmax(bad, other);
        if (is_lossy ? of_node : of_link) fabric.lose(way, 10);
        if (is_lossy ? of_link : of_node) way.gbps *= 0.4;
      };
      std::vector<Culprit> expected{node};
      if (!is_lossy) expected.push_back(link);
      EXPECT_THAT(culprits(fabric.locate()), testing::UnorderedElementsAreArray(expected)) << seed;
    }
  }
}

// What a stream leaves in the queue of a slow port makes pings late, now of one pair, now of another.
TEST(Explained, ASlowNodeExplainsALatePair) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    FakeFabric fabric(4, seed);
    const int slow = fabric.pick(4), other = (slow + 1 + fabric.pick(3)) % 4;
    fabric.way_fault = [&](int from, int to, Way& way) {
      if (from == slow || to == slow) way.gbps *= 0.3;
    };
    fabric.pair_fault = [&](PairResult& result) {
      if (std::minmax(result.a, result.b) == std::minmax(slow, other)) result.least_us += 150;
    };
    EXPECT_THAT(culprits(fabric.locate()), testing::ElementsAre(Culprit{.kind = Kind::node, .a = slow})) << seed;
  }
}

TEST(Explained, AFlapDoesNotHideALossyLink) {
  FakeFabric fabric(8, 3);
  fabric.way_fault = [&](int from, int to, Way& way) {
    if (std::minmax(from, to) == std::minmax(2, 5)) fabric.lose(way, 10);
  };
  fabric.pair_fault = [](PairResult& result) {
    if (result.a == 5 || result.b == 5) return;  // between flaps
    if (result.a == 2) result.counts_a.carrier_losses = 1;
    if (result.b == 2) result.counts_b.carrier_losses = 1;
  };
  EXPECT_THAT(culprits(fabric.locate()), testing::UnorderedElementsAre(Culprit{.kind = Kind::node, .a = 2},
                                                                       Culprit{.kind = Kind::link, .a = 2, .b = 5}));
}

// What was measured while an interface went or came says nothing of ways.
TEST(Explained, AFlapExplainsWhatItDisturbed) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    FakeFabric fabric(8, seed);
    int tested = 0;
    fabric.pair_fault = [&](PairResult& result) {
      if (result.a != 3 && result.b != 3) return;
      NodeCounts& counts = result.a == 3 ? result.counts_a : result.counts_b;
      if (++tested % 4 == 0) return;  // between two flaps
      (tested % 4 == 1 ? counts.carrier_losses : counts.carrier_gains) = 1;
      for (Way* way : {&result.there, &result.back}) {
        way->gbps *= 0.2;
        way->lost = 900;
      }
    };
    const Locator locator = fabric.locate();
    ASSERT_EQ(locator.faults().size(), 1U) << seed;
    EXPECT_EQ(culprits(locator)[0], (Culprit{.kind = Kind::node, .a = 3}));
    EXPECT_THAT(locator.faults()[0].symptoms, testing::ElementsAre(Symptom::flap));
  }
}

}  // namespace
}  // namespace ms::net
