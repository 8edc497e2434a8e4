// Stages that have more to compute, and ranks that are slow, each without accusing the other: on synthetic runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tracepp/findings/suspects.h"
#include "tracepp/synthetic.h"

namespace ms::tracepp {
namespace {

using Is = Fault::Kind;

SyntheticRun even_run() { return {.mesh = {8, 4, 2}}; }

Diagnosis diagnosed(Fault fault, SyntheticRun run = even_run()) {
  run.faults = {fault};
  return find_suspects(make_run(run));
}

TEST(SlowStages, AreToldFromSlowRanks) {
  const int in_stage_1 = even_run().mesh.rank({.dp = 2, .pp = 1, .tp = 1});
  // One stage has more layers.
  const Diagnosis one = diagnosed({.kind = Is::slow_stage, .rank = in_stage_1, .factor = 1.25});
  ASSERT_EQ(one.findings.size(), 1U);
  EXPECT_EQ(one.findings[0].code, FindingCode::slow_stage);
  EXPECT_THAT(one.findings[0].evidence, testing::HasSubstr("stage 1 computes 2"));
  EXPECT_GT(one.findings[0].cost_share, 0.05);
  // Two of four: mending one of them alone would gain nothing.
  SyntheticRun run = even_run();
  run.faults = {{.kind = Is::slow_stage, .rank = 0, .factor = 1.25},
                {.kind = Is::slow_stage, .rank = in_stage_1, .factor = 1.25}};
  const Diagnosis two = find_suspects(make_run(run));
  ASSERT_EQ(two.findings.size(), 1U);
  EXPECT_THAT(two.findings[0].evidence, testing::HasSubstr("stages 0, 1 compute"));
  EXPECT_EQ(two.findings[0].ranks.size(), 32U);
  EXPECT_GT(two.findings[0].cost_share, 0.05);
  // A slow rank in even stages is not its stage.
  const Diagnosis rank = diagnosed({.kind = Is::slow_rank, .rank = in_stage_1, .factor = 1.3});
  ASSERT_EQ(rank.findings.size(), 1U);
  EXPECT_EQ(rank.findings[0].code, FindingCode::slow_rank);
  // Both: each is named, the rank against those of its own stage.
  run.faults = {{.kind = Is::slow_stage, .rank = 0, .factor = 1.25},
                {.kind = Is::slow_rank, .rank = in_stage_1, .factor = 1.6}};
  const Diagnosis both = find_suspects(make_run(run));
  ASSERT_EQ(both.findings.size(), 2U);
  EXPECT_EQ(both.findings[0].code, FindingCode::slow_rank);
  EXPECT_THAT(both.findings[0].ranks, testing::ElementsAre(in_stage_1));
  EXPECT_EQ(both.findings[1].code, FindingCode::slow_stage);
  EXPECT_EQ(both.findings[1].ranks.front(), 0);
  // A stage that is one host, or one rank, may as well be a slow one.
  SyntheticRun hosts = even_run();
  hosts.ranks_on_host = 16;
  EXPECT_THAT(diagnosed({.kind = Is::slow_stage, .rank = 0, .factor = 1.25}, hosts).findings.at(0).evidence,
              testing::ContainsRegex("if it has no more layers than they have, its host .* is slow"));
  hosts.mesh = {1, 4, 1};
  EXPECT_THAT(diagnosed({.kind = Is::slow_rank, .rank = 2, .factor = 1.25}, hosts).findings.at(0).evidence,
              testing::HasSubstr("its one rank is slow"));
}

TEST(SlowStages, ASlowRankIsFoundBesideThoseOfItsHostWhereHostsDiffer) {
  SyntheticRun run = even_run();
  run.mesh = {16, 4, 2};
  run.host_spread = 0.08;
  EXPECT_TRUE(find_suspects(make_run(run)).findings.empty());
  for (const int rank : {3, 64, 127}) {
    const Diagnosis diagnosis = diagnosed({.kind = Is::slow_rank, .rank = rank, .factor = 1.3}, run);
    ASSERT_EQ(diagnosis.findings.size(), 1U) << rank;
    EXPECT_EQ(diagnosis.findings[0].code, FindingCode::slow_rank);
    EXPECT_THAT(diagnosis.findings[0].ranks, testing::ElementsAre(rank));
  }
}

TEST(SlowStages, ASlowRankOfASlowHostIsNamedBesideTheHost) {
  SyntheticRun run = even_run();
  for (int rank = 8; rank < 16; ++rank) run.faults.push_back({.kind = Is::slow_rank, .rank = rank, .factor = 1.2});
  run.faults.push_back({.kind = Is::slow_rank, .rank = 9, .factor = 1.3});
  const Diagnosis diagnosis = find_suspects(make_run(run));
  ASSERT_EQ(diagnosis.findings.size(), 2U);
  std::vector<std::size_t> ranks;
  for (const Finding& finding : diagnosis.findings) {
    EXPECT_EQ(finding.code, FindingCode::slow_rank);
    EXPECT_EQ(finding.ranks.front(), 9);
    ranks.push_back(finding.ranks.size());
  }
  EXPECT_THAT(ranks, testing::UnorderedElementsAre(1U, 8U));
}

}  // namespace
}  // namespace ms::tracepp
