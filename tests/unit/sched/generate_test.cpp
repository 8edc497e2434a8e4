// The generators: exact orders, refusals, and a sweep in which every schedule must pass the checker.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "edit.h"
#include "sched/checker.h"
#include "sched/csv.h"
#include "sched/order.h"
#include "sched/registry.h"

namespace ms::sched {
namespace {

using testing::HasSubstr;

TEST(OrderTable, TakesGroupsOfMicrobatches) {
  const std::vector<Entry> table = order_table({.pp = 3, .chunks = 2, .microbatches = 5});
  const int microbatches[] = {0, 1, 2, 0, 1, 2, 3, 4, 3, 4};
  const int chunks[] = {0, 0, 0, 1, 1, 1, 0, 0, 1, 1};
  ASSERT_EQ(table.size(), 10U);
  for (std::size_t k = 0; k < 10; ++k) EXPECT_EQ(table[k], (Entry{chunks[k], microbatches[k]})) << k;
}

TEST(Generate, Gpipe) {
  EXPECT_EQ(computations(gpipe(2, 3), 0), "F0.0 F0.1 F0.2 B0.0 B0.1 B0.2");
  EXPECT_EQ(computations(gpipe(2, 3), 1), "F0.0 F0.1 F0.2 B0.0 B0.1 B0.2");
}

TEST(Generate, OneForwardOneBackward) {
  const Schedule schedule = one_f_one_b(3, 4);
  EXPECT_EQ(computations(schedule, 0), "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3");
  EXPECT_EQ(computations(schedule, 1), "F0.0 F0.1 B0.0 F0.2 B0.1 F0.3 B0.2 B0.3");
  EXPECT_EQ(computations(schedule, 2), "F0.0 B0.0 F0.1 B0.1 F0.2 B0.2 F0.3 B0.3");
}

TEST(Generate, Interleaved) {
  const Schedule schedule = interleaved(2, 2, 4);
  EXPECT_EQ(computations(schedule, 0),
            "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3");
  EXPECT_EQ(computations(schedule, 1),
            "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3");
}

TEST(Generate, ForwardOnly) {
  EXPECT_EQ(computations(forward_only(2, 1, 3), 1), "F0.0 F0.1 F0.2");
  EXPECT_EQ(computations(forward_only(2, 2, 3), 0), "F0.0 F0.1 F1.0 F1.1 F0.2 F1.2");
}

TEST(Generate, ThereAndBack) {
  EXPECT_EQ(computations(there_and_back(1, 1), 0), "F0.0 B0.0");
  EXPECT_EQ(computations(there_and_back(2, 3), 1), "F0.0 F1.0 F2.0 B2.0 B1.0 B0.0");
}

// On rank 0 a result leaves when a gradient arrives: the receive stands first.
TEST(Generate, CoupledReceivesStandWhereBothSidesMeet) {
  const Options late{.early_receives = false};
  EXPECT_EQ(to_csv(one_f_one_b(2, 2, late)),
            "# ms schedule 1: pp 2, chunks 1, microbatches 2, training\n"
            "G0,F0.0,SF0.0,F0.1,RB0.0,SF0.1,B0.0,RB0.1,B0.1,D0\n"
            "G0,RF0.0,F0.0,B0.0,SB0.0,RF0.1,F0.1,B0.1,SB0.1,D0\n");
}

TEST(Generate, EarlyReceivesAreOneComputationEarly) {
  EXPECT_EQ(to_csv(one_f_one_b(2, 2)),
            "# ms schedule 1: pp 2, chunks 1, microbatches 2, training\n"
            "G0,F0.0,SF0.0,RB0.0,F0.1,SF0.1,RB0.1,B0.0,B0.1,D0\n"
            "G0,RF0.0,F0.0,RF0.1,B0.0,SB0.0,F0.1,B0.1,SB0.1,D0\n");
}

TEST(Generate, AloneThereAreNoTransfers) {
  EXPECT_EQ(to_csv(one_f_one_b(1, 2)),
            "# ms schedule 1: pp 1, chunks 1, microbatches 2, training\nG0,F0.0,B0.0,F0.1,B0.1,D0\n");
}

TEST(Generate, Refusals) {
  struct Case {
    std::function<void()> make;
    const char* message;
  };
  const Case cases[] = {
      {[] { gpipe(0, 1); }, "at least one"},
      {[] { one_f_one_b(2, 0); }, "at least one"},
      {[] { forward_only(2, 0, 1); }, "at least one"},
      {[] { interleaved(1, 2, 4); }, "with pp 1 it must be 1"},
      {[] { forward_only(1, 2, 4); }, "with pp 1 it must be 1"},
      {[] { interleaved(4, 2, 6); }, "6 microbatches with 2 chunks are not a multiple of pp 4"},
      {[] { interleaved(4, 2, 2); }, "not a multiple of pp 4"},
      {[] { interleaved(2, 1 << 20, 1 << 20); }, "too many"},
      {[] { make_schedule("gpipe", 4, 2, 8); }, "gpipe does not take chunks = 2"},
      {[] { make_schedule("zb-h1", 4, 2, 8); }, "zb-h1 does not take chunks = 2"},
      {[] { zero_bubble_h1(2, 0); }, "at least one"},
      {[] { make_schedule("zigzag", 4, 1, 8); }, "'zigzag'"},
  };
  for (const Case& c : cases) {
    try {
      c.make();
      ADD_FAILURE() << "accepted: " << c.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.blame(), Blame::user);
      EXPECT_THAT(error.message(), HasSubstr(c.message));
    }
  }
}

// As they are meant to be executed, and coupled ones decoupled too: fewer waits cannot lock.
void expect_sound(const Schedule& schedule, bool early) {
  const Report report = check(schedule);
  EXPECT_TRUE(report.ok) << report.problem << "\n" << to_csv(schedule);
  if (early) return;
  const Report coupled = check(schedule, {}, Coupling::coupled);
  EXPECT_TRUE(coupled.ok) << coupled.problem << "\n" << to_csv(schedule);
}

TEST(Generate, EverythingPassesTheChecker) {
  for (const bool early : {false, true}) {
    const Options options{.early_receives = early, .spread_parameters = early};
    for (const int p : {1, 2, 3, 4, 8}) {
      for (const int m : {1, 2, 3, 5, 8, 12}) {
        for (const int v : {1, 2, 3}) {
          if (p == 1 && v > 1) continue;
          expect_sound(forward_only(p, v, m, options), early);
          if (m == 1) expect_sound(there_and_back(p, v, options), early);
          for (const ScheduleKind* kind : schedule_kinds()) {
            if (!kind->takes(v) || (kind->whole_groups && m % p != 0)) continue;
            expect_sound(make_schedule(kind->key, p, v, m, options), early);
          }
        }
      }
    }
  }
}

// As few slots as the order of rows allows: no more than (chunk, microbatch) between first and last row at some row.
TEST(Generate, SlotsAreMinimal) {
  for (const Schedule& schedule :
       {gpipe(4, 6), one_f_one_b(4, 8), zero_bubble_h1(4, 8), interleaved(4, 2, 8), forward_only(4, 2, 8)}) {
    for (std::size_t rank = 0; rank < schedule.rows.size(); ++rank) {
      const std::vector<Row>& rows = schedule.rows[rank];
      int most = 0;
      for (std::size_t now = 0; now < rows.size(); ++now) {
        std::set<std::pair<int, int>> before, live;
        for (std::size_t i = 0; i < rows.size(); ++i) {
          const std::pair key{rows[i].chunk, rows[i].microbatch};
          if (rows[i].microbatch == kNone) continue;
          if (i <= now) before.insert(key);
          if (i >= now && before.contains(key)) live.insert(key);
        }
        most = std::max(most, static_cast<int>(live.size()));
      }
      EXPECT_EQ(schedule.slots[rank], most) << "rank " << rank;
    }
  }
}

TEST(Generate, SlotsOfOneForwardOneBackward) {
  // Late receives: as many slots as microbatches in flight. Early ones: one more where forwards receive.
  const Schedule late = one_f_one_b(4, 8, {.early_receives = false});
  const Schedule early = one_f_one_b(4, 8);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    const int in_flight = 4 - static_cast<int>(rank);
    EXPECT_EQ(late.slots[rank], in_flight);
    EXPECT_EQ(early.slots[rank], in_flight + (rank > 0 ? 1 : 0));
  }
  EXPECT_EQ(forward_only(4, 1, 8, {.early_receives = false}).slots[1], 1);
}

// The chunks of a rank share its slots: as many as chunks are alive at once, and one that a forward receives early.
TEST(Generate, SlotsOfInterleavedAreThoseOfLiveChunks) {
  for (const auto& [pp, chunks, microbatches] : {std::tuple{2, 2, 8}, {4, 2, 8}, {4, 3, 16}, {8, 6, 24}}) {
    const Schedule schedule = interleaved(pp, chunks, microbatches);
    const Report report = check(schedule);
    for (std::size_t rank = 0; rank < schedule.rows.size(); ++rank) {
      EXPECT_EQ(schedule.slots[rank], report.ranks[rank].peak_chunks + 1) << "pp " << pp << " rank " << rank;
    }
  }
}

// A slot that has been free for long is taken first: whoever takes it waits for nobody who has just had it.
TEST(Generate, TheSlotThatHasBeenFreeTheLongestIsTaken) {
  Schedule schedule = parse_csv("G0,F0.0,F0.1,B0.0,B0.1,F0.2,B0.2,F0.3,B0.3,D0\n", "test", {1, 1, 4});
  EXPECT_EQ(schedule.slots[0], 2);
  EXPECT_EQ(at(schedule, 0, "F0.2").slot, 0);
  EXPECT_EQ(at(schedule, 0, "F0.3").slot, 1);
}

}  // namespace
}  // namespace ms::sched
