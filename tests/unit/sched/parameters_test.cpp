// Where gathers and reductions over dp stand: in order of need, and at one time on all ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "edit.h"
#include "sched/checker.h"

namespace ms::sched {
namespace {

using testing::ElementsAre;

constexpr Options kPlain{.spread_parameters = false};

// Every gather with the computation that follows it, every reduction with the one before it: "G2>F0.1", "B1.3>D1".
std::vector<std::string> places(const Schedule& schedule, std::size_t rank) {
  const std::vector<Row>& rows = schedule.rows[rank];
  std::vector<std::string> found;
  for (auto row = rows.begin(); row != rows.end(); ++row) {
    const auto is_compute = [](const Row& other) { return other.is_compute(); };
    if (row->action == Action::gather_params) {
      found.push_back(cell(*row) + ">" + cell(*std::find_if(row, rows.end(), is_compute)));
    } else if (row->action == Action::reduce_grads) {
      found.push_back(cell(*std::find_if(std::make_reverse_iterator(row), rows.rend(), is_compute)) + ">" + cell(*row));
    }
  }
  return found;
}

TEST(Parameters, SpreadAreSkewedByRank) {
  // Rank 0: ... F1.0 F1.1 F2.0 ... and B2.1 B1.0 B1.1 B0.0 B0.1; rank 1 gathers and reduces one computation apart.
  const Schedule schedule = interleaved(2, 3, 2);
  EXPECT_THAT(places(schedule, 0), ElementsAre("G0>F0.0", "G1>F0.0", "G2>F1.1", "B2.1>D2", "B1.1>D1", "B0.1>D0"));
  EXPECT_THAT(places(schedule, 1), ElementsAre("G0>F0.0", "G1>F0.0", "G2>F1.0", "B1.0>D2", "B0.0>D1", "B0.1>D0"));
}

TEST(Parameters, PlainAreGatheredAtTheStartAndReducedAtTheEnd) {
  const Schedule schedule = interleaved(2, 3, 2, kPlain);
  for (const std::size_t rank : {0U, 1U}) {
    EXPECT_THAT(places(schedule, rank), ElementsAre("G0>F0.0", "G1>F0.0", "G2>F0.0", "B0.1>D2", "B0.1>D1", "B0.1>D0"));
  }
}

TEST(Parameters, EvaluationOnlyGathers) {
  EXPECT_THAT(places(forward_only(2, 3, 2), 1), ElementsAre("G0>F0.0", "G1>F0.0", "G2>F1.0"));
  EXPECT_THAT(places(forward_only(2, 3, 2, kPlain), 1), ElementsAre("G0>F0.0", "G1>F0.0", "G2>F0.0"));
}

TEST(Parameters, AChunkAloneIsReducedAtTheEnd) {
  for (const Schedule& schedule : {gpipe(3, 4), one_f_one_b(3, 4)}) {
    for (const std::size_t rank : {0U, 1U, 2U}) {
      EXPECT_THAT(places(schedule, rank), ElementsAre("G0>F0.0", "B0.3>D0"));
    }
  }
  EXPECT_THAT(places(zero_bubble_h1(3, 4), 2), ElementsAre("G0>F0.0", "W0.3>D0"));
}

TEST(Parameters, OrderOnTheWireIsOrderOfNeed) {
  for (const auto& [p, v, m] : {std::array{2, 4, 2}, {4, 4, 8}, {4, 6, 4}, {8, 3, 16}}) {
    const Schedule schedule = interleaved(p, v, m);
    for (const std::vector<Row>& rows : schedule.rows) {
      std::vector<int> gathers, reductions, needed, done;
      for (const Row& row : rows) {
        if (row.action == Action::gather_params) gathers.push_back(row.chunk);
        if (row.action == Action::reduce_grads) reductions.push_back(row.chunk);
        if (row.action == Action::forward && row.microbatch == 0) needed.push_back(row.chunk);
        if (row.action == Action::backward && row.microbatch == m - 1) done.push_back(row.chunk);
      }
      EXPECT_EQ(gathers, needed);
      EXPECT_EQ(reductions, done);
    }
  }
}

// The last launch of a chunk's gather or reduction over all ranks, less the first.
double apart(const Report& report, std::vector<double> RankReport::*launches, int chunk) {
  double first = 1e9, last = 0;
  for (const RankReport& rank : report.ranks) {
    first = std::min(first, (rank.*launches)[static_cast<std::size_t>(chunk)]);
    last = std::max(last, (rank.*launches)[static_cast<std::size_t>(chunk)]);
  }
  return last - first;
}

TEST(Parameters, AllRanksLaunchTogether) {
  for (const auto& [p, v, m] : {std::array{2, 3, 4}, {4, 4, 8}, {4, 3, 4}, {8, 4, 16}}) {
    const Times times{.forward = 1.0 * v, .backward = 2.0 * v};  // of a chunk: 1 and 2
    const Report skewed = check(interleaved(p, v, m), times), plain = check(interleaved(p, v, m, kPlain), times);
    ASSERT_TRUE(skewed.ok && plain.ok) << skewed.problem << plain.problem;
    EXPECT_EQ(skewed.makespan, plain.makespan);
    for (int chunk = 0; chunk < v; ++chunk) {
      EXPECT_DOUBLE_EQ(apart(skewed, &RankReport::gathers, chunk), 0) << "chunk " << chunk;
      if (chunk > 0) {
        EXPECT_DOUBLE_EQ(apart(skewed, &RankReport::reductions, chunk), 0) << "chunk " << chunk << " p " << p;
      }
      EXPECT_DOUBLE_EQ(apart(plain, &RankReport::reductions, chunk), 2.0 * (p - 1)) << "chunk " << chunk;
    }
    // Nothing is left to wait for behind the last backward.
    EXPECT_DOUBLE_EQ(apart(skewed, &RankReport::reductions, 0), 2.0 * (p - 1));
    // Spread, a gather is launched when the first rank is one computation away from its forward.
    EXPECT_DOUBLE_EQ(plain.ranks[0].gathers[2], 0);
    EXPECT_DOUBLE_EQ(skewed.ranks[0].gathers[2], 2.0 * p - 1);
  }
}

}  // namespace
}  // namespace ms::sched
