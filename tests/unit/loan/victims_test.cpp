// Which nodes go back: examples by hand, and the greedy rule against every possible choice.
#include "loan/victims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "base/rng.h"

namespace ms::loan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Case {
  std::vector<LoanedNode> nodes;
  std::vector<LoanedJob> jobs;
};

// Up to 9 jobs on up to 7 nodes on loan; some have nodes of training, too.
Case random_case(std::uint64_t seed) {
  std::uint64_t drawn = 0;
  const auto below = [&](std::uint64_t n) { return static_cast<int>(uniform_below(seed, 1, drawn++, n)); };
  Case drawn_case;
  const int num_nodes = 3 + below(5), num_jobs = 1 + below(9);
  for (int n = 0; n < num_nodes; ++n) drawn_case.nodes.push_back({.id = 100 + n, .jobs = {}});
  for (int j = 0; j < num_jobs; ++j) {
    const int wanted = 1 + below(3);
    int placed = 0;
    for (int tries = 0; tries < wanted; ++tries) {
      std::vector<int>& jobs = drawn_case.nodes[static_cast<std::size_t>(below(num_nodes))].jobs;
      if (jobs.size() == 3 || std::count(jobs.begin(), jobs.end(), j) > 0) continue;
      jobs.push_back(j);
      ++placed;
    }
    drawn_case.jobs.push_back({.nodes = std::max(1, placed + below(2)), .started_s = 1.0 * below(100)});
  }
  return drawn_case;
}

// Nodes of which all jobs are in `preempted`.
int empty_nodes(const Case& it, unsigned preempted) {
  int empty = 0;
  for (const LoanedNode& node : it.nodes) {
    empty += std::all_of(node.jobs.begin(), node.jobs.end(), [&](int j) { return (preempted >> j & 1U) != 0; });
  }
  return empty;
}

int fewest_preemptions(const Case& it, int count) {
  int fewest = static_cast<int>(it.jobs.size());
  for (unsigned set = 0; set < 1U << it.jobs.size(); ++set) {
    if (empty_nodes(it, set) >= count) fewest = std::min(fewest, std::popcount(set));
  }
  return fewest;
}

TEST(Victims, EmptyNodesGoFirstAndHurtNobody) {
  const std::vector<LoanedNode> nodes = {{1, {0}}, {2, {}}, {3, {}}};
  const std::vector<LoanedJob> jobs = {{.nodes = 1}};
  for (const VictimRule rule : {VictimRule::cost, VictimRule::random, VictimRule::youngest}) {
    const Victims victims = pick_victims(nodes, jobs, 2, rule);
    EXPECT_THAT(victims.nodes, ElementsAre(2, 3)) << static_cast<int>(rule);
    EXPECT_THAT(victims.jobs, IsEmpty()) << static_cast<int>(rule);
  }
}

TEST(Victims, CostIsTheShareOfAJobThatANodeHolds) {
  // Node 1 holds two whole jobs, nodes 2 and 3 a half of job 2 each: preempting that one empties both.
  const std::vector<LoanedNode> nodes = {{1, {0, 1}}, {2, {2}}, {3, {2}}};
  const std::vector<LoanedJob> jobs = {{.nodes = 1}, {.nodes = 1}, {.nodes = 2}};
  for (const int count : {1, 2}) {
    const Victims victims = pick_victims(nodes, jobs, count, VictimRule::cost);
    EXPECT_THAT(victims.jobs, ElementsAre(2));
    EXPECT_EQ(victims.nodes.size(), static_cast<std::size_t>(count));
  }
  EXPECT_THAT(pick_victims(nodes, jobs, 3, VictimRule::cost).jobs, ElementsAre(2, 0, 1));
}

TEST(Victims, SparesAJobThatALaterPickMadeUnnecessary) {
  // Four nodes are wanted. Node 9 costs least by a hair and goes first, but the large job alone empties four.
  const std::vector<LoanedNode> nodes = {{9, {0}}, {1, {1}}, {2, {1}}, {3, {1}}, {4, {1}}};
  const std::vector<LoanedJob> jobs = {{.nodes = 5}, {.nodes = 4}};
  EXPECT_THAT(pick_victims(nodes, jobs, 4, VictimRule::cost).jobs, ElementsAre(1));
}

TEST(Victims, YoungestJobsEndFirst) {
  const std::vector<LoanedNode> nodes = {{1, {0}}, {2, {1}}};
  const std::vector<LoanedJob> jobs = {{.nodes = 1, .started_s = 5},
                                       {.nodes = 1, .started_s = 9},
                                       {.nodes = 1, .started_s = 99}};  // on none of these nodes
  EXPECT_THAT(pick_victims(nodes, jobs, 1, VictimRule::youngest).jobs, ElementsAre(1));
}

TEST(Victims, AsksForNoMoreThanThereAre) {
  const std::vector<LoanedNode> nodes = {{1, {}}};
  EXPECT_THAT(pick_victims(nodes, {}, 5, VictimRule::cost).nodes, ElementsAre(1));
  EXPECT_THAT(pick_victims({}, {}, 5, VictimRule::cost).nodes, IsEmpty());
  EXPECT_THAT(pick_victims(nodes, {}, -1, VictimRule::cost).nodes, IsEmpty());
}

TEST(Victims, GreedyIsCloseToTheBestOfAllChoices) {
  constexpr int kCases = 500;
  std::array<int, 3> preempted{};
  int best = 0, optimal = 0;
  for (int i = 0; i < kCases; ++i) {
    const Case it = random_case(static_cast<std::uint64_t>(i));
    const int count = 1 + i % static_cast<int>(it.nodes.size());
    const int fewest = fewest_preemptions(it, count);
    best += fewest;
    for (const VictimRule rule : {VictimRule::cost, VictimRule::random, VictimRule::youngest}) {
      const Victims victims = pick_victims(it.nodes, it.jobs, count, rule, static_cast<std::uint64_t>(i));
      ASSERT_EQ(std::ssize(victims.nodes), count);
      unsigned set = 0;
      for (const int job : victims.jobs) set |= 1U << job;
      ASSERT_EQ(std::popcount(set), std::ssize(victims.jobs));
      for (const int id : victims.nodes) {  // every node that goes back is empty
        for (const int job : it.nodes[static_cast<std::size_t>(id - 100)].jobs) ASSERT_NE(set >> job & 1U, 0U);
      }
      ASSERT_GE(std::ssize(victims.jobs), fewest);
      preempted[static_cast<std::size_t>(rule)] += static_cast<int>(victims.jobs.size());
      optimal += rule == VictimRule::cost && std::ssize(victims.jobs) == fewest;
    }
  }
  RecordProperty("exhaustive", best);
  RecordProperty("cost", preempted[0]);
  RecordProperty("random", preempted[1]);
  RecordProperty("youngest", preempted[2]);
  RecordProperty("cases_optimal", optimal);
  EXPECT_LE(preempted[0], 1.05 * best);
  EXPECT_GE(optimal, 0.9 * kCases);
  EXPECT_GT(preempted[1], preempted[0]);
  EXPECT_GT(preempted[2], preempted[0]);
}

}  // namespace
}  // namespace ms::loan
