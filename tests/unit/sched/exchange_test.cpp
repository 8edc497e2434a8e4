// Coupled executors of interleaved schedules exchange once for each forward and backward that alternate, and so lose
// no more than the bubble: a forward that had to be exchanged at once would meet a rank in the middle of a backward.
#include <gtest/gtest.h>

#include <algorithm>

#include "edit.h"
#include "sched/checker.h"

namespace ms::sched {
namespace {

constexpr Options kCoupledChunks{.early_receives = false, .spread_parameters = false};

TEST(Exchange, CoupledInterleavedHasTheClosedFormulasBubble) {
  for (const int pp : {2, 3, 4, 8}) {
    for (const int chunks : {2, 3, 6}) {
      for (const int rounds : {1, 2, 5}) {
        const int m = pp * rounds;
        for (const double backward : {1.0, 2.0, 2.5}) {
          const Report report =
              check(interleaved(pp, chunks, m, kCoupledChunks), {.backward = backward}, Coupling::coupled);
          ASSERT_TRUE(report.ok) << report.problem;
          // Where there is one group of microbatches only, a rank that does all its forwards first has no pair to
          // exchange with that of the next rank.
          const double more = rounds == 1 ? 1.0 / chunks : 0;
          const double formula = m * (1 + backward) + (pp - 1) * (1 + backward) / chunks;
          EXPECT_GE(report.makespan, formula - 1e-9);
          EXPECT_LE(report.makespan, formula + more + 1e-9)
              << "pp " << pp << " chunks " << chunks << " m " << m << " backward " << backward;
        }
      }
    }
  }
}

TEST(Exchange, SendsOfAPairStandTogetherBehindTheReceives) {
  const Schedule schedule = interleaved(4, 2, 8, kCoupledChunks);
  for (const std::vector<Row>& rows : schedule.rows) {
    for (std::size_t i = 0; i + 1 < rows.size(); ++i) {
      // Between a forward and the backward of its pair nothing is exchanged.
      const bool pair = rows[i].action == Action::forward && rows[i + 1].action == Action::backward;
      const bool last = std::find_if(rows.begin() + static_cast<std::ptrdiff_t>(i) + 1, rows.end(),
                                     [](const Row& row) { return row.action == Action::forward; }) == rows.end();
      const auto before = std::count_if(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(i),
                                        [](const Row& row) { return row.action == Action::backward; });
      if (rows[i].action == Action::forward && before > 0 && !last) { EXPECT_TRUE(pair) << cell(rows[i]); }
      if (rows[i].is_transfer() && rows[i + 1].is_transfer()) {
        const auto sends = [](const Row& row) {
          return row.action == Action::send_forward || row.action == Action::send_backward;
        };
        EXPECT_FALSE(sends(rows[i]) && !sends(rows[i + 1])) << cell(rows[i]) << " before " << cell(rows[i + 1]);
      }
    }
  }
}

TEST(Exchange, ParametersThatAreWaitedForMoveAtTheEnds) {
  for (const std::vector<Row>& rows : interleaved(4, 2, 8, kCoupledChunks).rows) {
    const auto is_dp = [](const Row& row) {
      return row.action == Action::gather_params || row.action == Action::reduce_grads;
    };
    const auto first = std::find_if_not(rows.begin(), rows.end(), is_dp);
    const auto last = std::find_if_not(rows.rbegin(), rows.rend(), is_dp).base();
    EXPECT_EQ(std::count_if(rows.begin(), first, is_dp), 2);
    EXPECT_EQ(std::count_if(last, rows.end(), is_dp), 2);
    EXPECT_EQ(std::count_if(first, last, is_dp), 0);
  }
}

}  // namespace
}  // namespace ms::sched
