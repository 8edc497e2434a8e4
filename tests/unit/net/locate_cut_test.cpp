// A search for what makes a fabric slow that something else ended.
#include <gmock/gmock.h>

#include "fake_fabric.h"

namespace ms::net {
namespace {

using test::culprits;
using test::FakeFabric;
using testing::IsEmpty;

// The transfer of another pair hangs in the sixth round, and nothing can be tested again: who looked slow in the first
// five is not accused, and who is gone is.
TEST(Locate, WhatCouldNotBeTestedAgainAccusesNobody) {
  for (const bool is_gone : {false, true}) {
    FakeFabric fabric(8, 1);
    fabric.way_fault = [](int from, int, Way& way) {
      if (from == 0) way.gbps *= 0.1;
    };
    Locator cut(8, {});
    for (int round = 0; round < 6; ++round) {
      std::vector<PairResult> results;
      const Round tested = cut.next().value();
      for (const auto& [a, b] : tested) {
        results.push_back(fabric.measure(a, b, true));
        if (round < 5) continue;
        results.back() = test::silent(results.back(), "ranks 2, 3 wait for each other", -1);
        results.back().cut_short = true;
        if (is_gone && (a == 3 || b == 3)) results.back().at_fault = 3;
      }
      cut.take(results);
    }
    EXPECT_THAT(culprits(cut), testing::Not(IsEmpty()));
    const std::vector<Fault> decided = cut.decided_faults();
    std::vector<int> accused;
    for (const Fault& fault : decided) accused.push_back(fault.culprit.a);
    EXPECT_EQ(accused, is_gone ? std::vector<int>{3} : std::vector<int>{});
    EXPECT_THAT(cut.healthy(), testing::Not(testing::Contains(0)));
    // A search that ends by itself has tested all of it again.
    Locator whole = fabric.locate();
    EXPECT_EQ(whole.decided_faults().size(), whole.faults().size());
    EXPECT_FALSE(whole.faults().empty());
  }
}

}  // namespace
}  // namespace ms::net
