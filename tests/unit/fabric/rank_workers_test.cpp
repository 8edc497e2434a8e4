// Ranks as threads measure each other; who is lost is named, and the check ends.
#include "fabric/rank_workers.h"

#include <gmock/gmock.h>

#include <set>
#include <thread>

#include "net/commands/check.h"

namespace ms::fabric {
namespace {

using net::Checked;
using net::CheckOptions;
using net::Cover;
using net::Kind;
using net::PairResult;
using net::PairSpec;
using net::RanksRequest;
using net::Symptom;
using net::Workers;

PairSpec quickest() { return {.pings = 20, .seconds = 0.02}; }

RanksRequest threads(int ranks) { return {.transport = "threads", .ranks = ranks, .deadline_s = 20}; }

TEST(RankWorkers, MeasuresEveryPairBothWays) {
  for (const bool at_once : {true, false}) {
    CheckOptions options{.spec = quickest(), .cover = Cover::all};
    options.spec.both_at_once = at_once;
    const std::optional<Checked> checked =
        check_ranks(threads(4), [&](Workers& workers) { return check_pairs(workers, options); });
    ASSERT_TRUE(checked);
    EXPECT_EQ(checked->nodes.size(), 4U);  // of one node, so every rank is one
    ASSERT_EQ(checked->results.size(), 6U);
    for (const PairResult& result : checked->results) {
      EXPECT_EQ(result.error, "");
      EXPECT_GT(result.least_us, 0);
      EXPECT_LE(result.least_us, result.p50_us);
      EXPECT_LE(result.p50_us, result.p99_us);
      EXPECT_GT(result.there.gbps, 0.01);
      EXPECT_GT(result.back.gbps, 0.01);
      EXPECT_EQ(result.at_once, at_once);
    }
    EXPECT_EQ(checked->healthy.size(), 4U);
  }
}

TEST(RankWorkers, InARingEverybodySendsToOneAndReceivesFromAnother) {
  const CheckOptions options{.spec = quickest(), .cover = Cover::ring};
  const std::optional<Checked> checked =
      check_ranks(threads(3), [&](Workers& workers) { return check_pairs(workers, options); });
  ASSERT_EQ(checked->results.size(), 6U);
  for (const PairResult& result : checked->results) {
    EXPECT_GT(result.there.gbps, 0.01);
    EXPECT_LT(result.back.gbps, 0);
  }
}

TEST(RankWorkers, KeepsToARate) {
  CheckOptions options{.spec = {.pings = 0, .seconds = 0.2, .max_gbps = 0.1}, .cover = Cover::all};
  const std::optional<Checked> checked =
      check_ranks(threads(2), [&](Workers& workers) { return check_pairs(workers, options); });
  EXPECT_LT(checked->results.front().there.gbps, 0.15);
  EXPECT_LT(checked->results.front().back.gbps, 0.15);
}

TEST(RankWorkers, GroupsReduceSideBySide) {
  const CheckOptions options;
  std::vector<double> seconds;
  const std::optional<Checked> checked = check_ranks(threads(5), [&](net::LaunchedWorkers& workers) {
    seconds = workers.time_groups({{0, 3}, {4, 1, 2}});
    return locate_by_groups(workers, options, [&](const auto& groups) {
      // The real reductions, with a rank 3 that takes its time.
      std::vector<double> times = workers.time_groups(groups);
      for (std::size_t g = 0; g < groups.size(); ++g)
        times[g] = std::ranges::find(groups[g], 3) == groups[g].end() ? 1 : 3;
      return times;
    });
  });
  ASSERT_EQ(seconds.size(), 2U);
  EXPECT_GT(seconds[0], 0);
  EXPECT_GT(seconds[1], 0);
  ASSERT_EQ(checked->faults.size(), 1U);
  EXPECT_EQ(checked->faults[0].culprit.kind, Kind::node);
  EXPECT_EQ(checked->faults[0].culprit.a, 3);
  EXPECT_NE(evidence(*checked, checked->faults[0]).find("3.0 times"), std::string::npos);
  EXPECT_EQ(checked->healthy.size(), 4U);
}

TEST(RankWorkers, ARankThatIsLostIsNamedAndNothingIsTestedAfterIt) {
  std::optional<Checked> checked;
  const CheckOptions options{.spec = quickest()};
  try {
    run_ranks({.transport = "threads", .ranks = 3, .deadline_s = 1},
              [&](comm::World& world, const RankDevices& devices) {
                RankWorkers workers(world, devices);
                if (world.rank() == 0) {
                  checked = locate(workers, options);
                } else if (world.rank() == 1) {
                  workers.serve();
                }  // rank 2 does not take part
              });
    FAIL() << "the launch ended well";
  } catch (const Error& error) { EXPECT_EQ(error.blame(), Blame::peer); }
  ASSERT_TRUE(checked);
  EXPECT_EQ(checked->rounds, 1);
  ASSERT_EQ(checked->faults.size(), 1U);
  EXPECT_EQ(checked->faults[0].culprit.a, 2);
  EXPECT_EQ(checked->faults[0].symptoms.front(), Symptom::silent);
}

// Ranks that do not take part. Of three, one has no partner in a round.
std::optional<Checked> check_without(const std::set<int>& absent, bool judges) {
  std::optional<Checked> checked;
  const CheckOptions options{.spec = quickest()};
  try {
    run_ranks({.transport = "threads", .ranks = 3, .deadline_s = 1},
              [&](comm::World& world, const RankDevices& devices) {
                RankWorkers workers(world, devices);
                if (world.rank() == 0) {
                  checked = judges ? locate(workers, options) : check_pairs(workers, options);
                } else if (!absent.contains(world.rank())) {
                  workers.serve();
                } else {
                  while (!world.cause()) std::this_thread::yield();
                }
              });
  } catch (const Error& error) { EXPECT_EQ(error.blame(), Blame::peer); }
  return checked;
}

TEST(RankWorkers, WhereNothingTellsWhoIsAtFaultNobodyIsAccused) {
  for (const bool judges : {true, false}) {
    const std::optional<Checked> checked = check_without({1, 2}, judges);
    ASSERT_TRUE(checked);
    EXPECT_TRUE(checked->faults.empty());
    EXPECT_TRUE(checked->healthy.empty());
    const std::vector<Finding> found = findings(*checked);
    ASSERT_EQ(found.size(), 1U) << as_text(*checked);
    EXPECT_EQ(found[0].code, "net.undecided");
    EXPECT_NE(found[0].entity, "");
    EXPECT_EQ(nagios_status(*checked), 2);
  }
}

TEST(RankWorkers, ARankThatIsLostIsNamedWhicheverPairIsTested) {
  for (const bool judges : {true, false}) {
    for (const int lost : {1, 2}) {
      const std::optional<Checked> checked = check_without({lost}, judges);
      ASSERT_TRUE(checked);
      const std::vector<Finding> found = findings(*checked);
      ASSERT_EQ(found.size(), 1U) << as_text(*checked);
      EXPECT_EQ(found[0].code, "net.silent");
      EXPECT_NE(found[0].entity.find(fmt::format(":{}", lost)), std::string::npos) << found[0].entity;
      EXPECT_NE(found[0].message, "no answer");
    }
  }
}

}  // namespace
}  // namespace ms::fabric
