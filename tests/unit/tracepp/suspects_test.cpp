// The verdict: on synthetic runs with a known culprit, and on runs that have none. tests/bench/straggler_accuracy has
// more seeds, sizes and faults.
#include "tracepp/findings/suspects.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "tracepp/findings/outliers.h"
#include "tracepp/synthetic.h"

namespace ms::tracepp {
namespace {

using Is = Fault::Kind;

SyntheticRun healthy(std::uint64_t seed = 1) {
  SyntheticRun run;
  run.mesh = {8, 4, 2};
  run.seed = seed;
  return run;
}

Diagnosis with(Fault fault, SyntheticRun run = healthy()) {
  run.faults = {fault};
  return find_suspects(make_run(run));
}

TEST(Suspects, HealthyRunsHaveNone) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    for (const double noise : {0.01, 0.02}) {
      SyntheticRun run = healthy(seed);
      run.noise = noise;
      run.outlier_rate = 0.003;
      const Diagnosis diagnosis = find_suspects(make_run(run));
      for (const Finding& finding : diagnosis.findings) ADD_FAILURE() << seed << " " << finding.evidence;
    }
  }
  SyntheticRun large = healthy();
  large.mesh = {32, 4, 8};
  large.steps = 6;
  EXPECT_TRUE(find_suspects(make_run(large)).findings.empty());
}

TEST(Suspects, ASlowRankIsTheFirst) {
  for (const double factor : {1.05, 1.1, 1.2}) {
    for (const int rank : {0, 21, 63}) {
      const Diagnosis diagnosis = with({.kind = Is::slow_rank, .rank = rank, .factor = factor});
      ASSERT_EQ(diagnosis.findings.size(), 1U) << rank;
      EXPECT_EQ(diagnosis.findings[0].code, FindingCode::slow_rank);
      EXPECT_THAT(diagnosis.findings[0].ranks, testing::ElementsAre(rank));
      EXPECT_EQ(diagnosis.suspects[0].rank, rank);
      const mesh::Coord at = diagnosis.mesh.coord(rank);
      EXPECT_EQ(diagnosis.suspects[0].tp, at.tp);
      EXPECT_EQ(diagnosis.findings[0].first_step, 0);
      EXPECT_GT(diagnosis.findings[0].confidence, 0.5);
    }
  }
  EXPECT_GT(with({.kind = Is::slow_rank, .rank = 21, .factor = 1.2}).findings[0].cost_share, 0.05);
}

TEST(Suspects, ReportTheFirstStep) {
  const Diagnosis diagnosis = with({.kind = Is::slow_rank, .rank = 30, .from_step = 4, .factor = 1.1});
  ASSERT_FALSE(diagnosis.findings.empty());
  EXPECT_EQ(diagnosis.findings[0].first_step, 4);
  EXPECT_EQ(diagnosis.findings[0].last_step, 9);
  EXPECT_THAT(diagnosis.findings[0].evidence, testing::HasSubstr("since about step 4"));
  // A rank that has no peers is compared with what it was.
  SyntheticRun alone = healthy();
  alone.mesh = {1, 1, 1};
  const Diagnosis change = with({.kind = Is::slow_rank, .rank = 0, .from_step = 5, .factor = 1.1}, alone);
  ASSERT_FALSE(change.findings.empty());
  EXPECT_EQ(change.findings[0].first_step, 5);
}

TEST(Suspects, DistinguishARankFromItsTpPeersWithoutDeviceTimes) {
  SyntheticRun run = healthy();
  run.has_detail = false;
  EXPECT_THAT(with({.kind = Is::slow_rank, .rank = 33, .factor = 1.1}, run).findings.at(0).ranks,
              testing::ElementsAre(33));
  // With nothing about what is inside of sections it may be any of them.
  RunTrace blind = [&] {
    run.faults = {{.kind = Is::slow_rank, .rank = 33, .factor = 1.1}};
    return make_run(run);
  }();
  for (RankTrace& rank : blind.ranks) {
    std::erase_if(rank.events, [&](const Event& event) {
      const EventInfo& info = blind.info(event);
      return info.group >= 0 && blind.groups[static_cast<std::size_t>(info.group)].axis == GroupAxis::tp;
    });
  }
  const Diagnosis diagnosis = find_suspects(blind);
  ASSERT_FALSE(diagnosis.findings.empty());
  EXPECT_THAT(diagnosis.findings[0].ranks, testing::UnorderedElementsAre(32, 33));
  EXPECT_THAT(diagnosis.findings[0].evidence, testing::HasSubstr("it may be any of them"));
}

TEST(Suspects, Links) {
  const Diagnosis edge = with({.kind = Is::slow_link, .rank = 20, .factor = 3});
  ASSERT_EQ(edge.findings.size(), 1U);
  EXPECT_EQ(edge.findings[0].code, FindingCode::slow_link);
  EXPECT_THAT(edge.findings[0].ranks, testing::UnorderedElementsAre(20, 36));
  for (const int rank : {5, 20, 60}) {
    const Diagnosis nic = with({.kind = Is::slow_nic, .rank = rank, .factor = 2});
    ASSERT_EQ(nic.findings.size(), 1U) << rank;
    EXPECT_EQ(nic.findings[0].code, FindingCode::slow_link);
    EXPECT_THAT(nic.findings[0].ranks, testing::ElementsAre(rank));
  }
  // Without a pipeline nothing tells the members of a group apart.
  SyntheticRun no_pp = healthy();
  no_pp.mesh = {4, 1, 4};
  const Diagnosis group = with({.kind = Is::slow_nic, .rank = 6, .factor = 3}, no_pp);
  ASSERT_EQ(group.findings.size(), 1U);
  EXPECT_THAT(group.findings[0].ranks, testing::ElementsAre(2, 6, 10, 14));
  EXPECT_LT(group.findings[0].confidence, 0.3);
}

TEST(Suspects, FindStalls) {
  for (const Is kind : {Is::pause, Is::stall}) {
    const Diagnosis diagnosis = with({.kind = kind, .rank = 26, .from_step = 5, .seconds = 0.3});
    ASSERT_EQ(diagnosis.findings.size(), 1U);
    EXPECT_EQ(diagnosis.findings[0].code, FindingCode::pause);
    EXPECT_THAT(diagnosis.findings[0].ranks, testing::ElementsAre(26));
    EXPECT_EQ(diagnosis.findings[0].first_step, 5);
    EXPECT_NEAR(diagnosis.findings[0].cost_s, 0.03, 0.005);  // in one of ten steps
  }
  const Diagnosis data = with({.kind = Is::data_stall, .rank = 9, .from_step = 2, .seconds = 0.8});
  ASSERT_EQ(data.findings.size(), 1U);
  EXPECT_EQ(data.findings[0].code, FindingCode::data_stall);
  EXPECT_THAT(data.findings[0].ranks, testing::ElementsAre(8, 9, 56, 57));
  EXPECT_EQ(data.findings[0].first_step, 2);

  const Diagnosis launches = with({.kind = Is::launch_pauses, .seconds = 0.05, .rate = 0.03});
  ASSERT_EQ(launches.findings.size(), 1U);
  EXPECT_EQ(launches.findings[0].code, FindingCode::launch_delay);
}

TEST(Suspects, FindCausesThatAreNoRanksFault) {
  const Diagnosis last = with({.kind = Is::last_stage, .factor = 1.15});
  ASSERT_EQ(last.findings.size(), 1U);
  EXPECT_EQ(last.findings[0].code, FindingCode::last_stage);
  EXPECT_EQ(last.suspects[0].pp, 3);
  const Diagnosis uneven = with({.kind = Is::uneven_samples, .factor = 0.1});
  ASSERT_EQ(uneven.findings.size(), 1U);
  EXPECT_EQ(uneven.findings[0].code, FindingCode::uneven_sequences);
  EXPECT_TRUE(uneven.findings[0].ranks.empty());
  EXPECT_GT(uneven.findings[0].cost_share, 0.03);
}

TEST(Suspects, AFaultComesBeforeTheLayoutThatCostsMore) {
  SyntheticRun run = healthy();
  const int slow = run.mesh.rank({.dp = 5, .pp = 3, .tp = 1});
  run.faults = {{.kind = Is::last_stage, .factor = 1.3}, {.kind = Is::slow_rank, .rank = slow, .factor = 1.1}};
  const Diagnosis diagnosis = find_suspects(make_run(run));
  ASSERT_EQ(diagnosis.findings.size(), 2U);
  EXPECT_EQ(diagnosis.findings[0].code, FindingCode::last_stage);
  EXPECT_EQ(diagnosis.findings[1].code, FindingCode::slow_rank);
  ASSERT_GT(diagnosis.suspects.size(), 1U);
  EXPECT_EQ(diagnosis.suspects[0].rank, slow);
  EXPECT_EQ(diagnosis.suspects[1].pp, 3);
}

// Everything takes three times as long as the devices compute: they are shared.
TEST(Suspects, ReportOnlySlowRanksOfLowCostOnSharedCores) {
  const auto shared = [](const Fault& fault, std::uint64_t seed = 1) {
    SyntheticRun run = healthy(seed);
    run.faults = {fault};
    RunTrace trace = make_run(run);
    for (RankTrace& rank : trace.ranks) {
      for (Event& event : rank.events) {
        event.begin_ns *= 3;
        event.duration_ns *= 3;
      }
    }
    return find_suspects(trace);
  };
  EXPECT_TRUE(shared({.kind = Is::slow_link, .rank = 20, .factor = 1.5}).findings.empty());
  const Diagnosis little = shared({.kind = Is::slow_rank, .rank = 21, .factor = 1.05});
  ASSERT_EQ(little.findings.size(), 1U);
  EXPECT_EQ(little.findings[0].code, FindingCode::slow_rank);
  EXPECT_THAT(little.findings[0].ranks, testing::ElementsAre(21));
  EXPECT_EQ(little.suspects[0].rank, 21);
  EXPECT_LT(little.findings[0].cost_share, 0.02);
  EXPECT_THAT(little.findings[0].evidence, testing::HasSubstr("where nothing disturbs them"));
  for (std::uint64_t seed = 1; seed <= 5; ++seed) EXPECT_TRUE(shared({.factor = 1}, seed).findings.empty()) << seed;
  const Diagnosis much = shared({.kind = Is::slow_rank, .rank = 21, .factor = 1.5});
  ASSERT_EQ(much.findings.size(), 1U);
  EXPECT_THAT(much.findings[0].ranks, testing::ElementsAre(21));
}

TEST(Suspects, SeveralAtOnceAreOrderedByCost) {
  SyntheticRun run = healthy();
  run.faults = {{.kind = Is::pause, .rank = 40, .from_step = 3, .seconds = 0.1},
                {.kind = Is::slow_rank, .rank = 11, .factor = 1.3}};
  const Diagnosis diagnosis = find_suspects(make_run(run));
  ASSERT_EQ(diagnosis.findings.size(), 2U);
  EXPECT_EQ(diagnosis.findings[0].code, FindingCode::slow_rank);
  EXPECT_EQ(diagnosis.findings[1].code, FindingCode::pause);
  EXPECT_EQ(diagnosis.suspects[0].rank, 11);
  EXPECT_EQ(diagnosis.suspects[1].rank, 40);
}

TEST(Suspects, ArePrintedAsTextAndJson) {
  const Diagnosis diagnosis = with({.kind = Is::slow_rank, .rank = 21, .factor = 1.2});
  EXPECT_THAT(suspects_text(diagnosis), testing::HasSubstr("1. slow_rank: rank 21; costs "));
  const std::string tables = stragglers_text(diagnosis);
  EXPECT_THAT(tables, testing::HasSubstr("10 steps of dp 8 pp 4 tp 2\n"));
  EXPECT_THAT(tables, testing::HasSubstr("        dp 2  .#..\n"));  // rank 21: dp 2, pp 1
  const auto parsed = nlohmann::json::parse(suspects_json(diagnosis));
  EXPECT_GT(parsed["slowdown"]["S"].get<double>(), 1.05);
  EXPECT_TRUE(parsed["slowdown"].contains("M_W") && parsed["slowdown"].contains("M_S"));
  const auto& suspect = parsed["suspects"][0];
  EXPECT_EQ(suspect["rank"], 21);
  EXPECT_EQ(suspect["dp"], 2);
  EXPECT_EQ(suspect["pp"], 1);
  EXPECT_EQ(suspect["tp"], 1);
  EXPECT_GT(suspect["score"].get<double>(), 1.05);
  EXPECT_EQ(parsed["findings"][0]["code"], "slow_rank");
  EXPECT_EQ(parsed["steps"].size(), 10U);
  EXPECT_EQ(parsed["findings"][0]["fault"], true);
  // All seconds are of one step, the mean of those that were measured.
  double sum_s = 0;
  for (const auto& step : parsed["steps"]) sum_s += step["measured_s"].get<double>();
  EXPECT_NEAR(parsed["measured_s"].get<double>(), sum_s / 10, 1e-9);
  EXPECT_NEAR(parsed["findings"][0]["cost_share"].get<double>() * parsed["measured_s"].get<double>(),
              parsed["findings"][0]["cost_s"].get<double>(), 1e-9);
  EXPECT_THAT(suspects_text(diagnosis),
              testing::StartsWith(fmt::format("a step takes {:.4f} s, the mean of 10 measured "
                                              "steps",
                                              diagnosis.measured_s)));

  const Diagnosis nothing = find_suspects(make_run(healthy()));
  EXPECT_THAT(suspects_text(nothing), testing::HasSubstr("nothing stands out"));
}

Finding finding_of(FindingCode code, std::int64_t first, std::int64_t last, double cost_s = 0, double cost_share = 0) {
  return {code, {}, first, last, cost_s, cost_share, 0.9, "for a reason"};
}

TEST(Suspects, CostsAreOfAStepOrOnce) {
  Diagnosis diagnosis;
  diagnosis.steps = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  diagnosis.measured_s = 0.5;
  Finding finding = finding_of(FindingCode::pause, 4, 4, 0.12, 0.24);
  EXPECT_EQ(cost_text(diagnosis, finding), "cost 1.2 s once, in step 4");
  finding.last_step = 9;
  EXPECT_EQ(cost_text(diagnosis, finding), "costs 0.1200 s of a step, 24.0 %");
  finding.cost_share = 1e-4;
  EXPECT_EQ(cost_text(diagnosis, finding), "costs next to nothing");
}

TEST(Suspects, LayoutIsNoFault) {
  for (const FindingKind& kind : finding_kinds()) {
    const bool is_layout = kind.code == FindingCode::last_stage || kind.code == FindingCode::slow_stage ||
                           kind.code == FindingCode::uneven_sequences;
    EXPECT_EQ(is_fault(finding_of(kind.code, 0, 0)), !is_layout) << kind.name;
  }
}

// What is lost without a cause that is sure is never "nothing".
TEST(Suspects, ReportLostTimeWithoutACause) {
  Diagnosis diagnosis;
  diagnosis.steps = {0, 1, 2};
  diagnosis.step_s = {1, 1, 1};
  diagnosis.measured_s = 1;
  Stragglers& found = diagnosis.stragglers;
  found.without_delays_s = 1;
  found.ideal_s = 0.8;
  found.S = 1.25;
  found.by_dp = {{"dp 0", 1.02}, {"dp 1", 1.2}};
  found.by_stage = {{"stage 0", 1.1}};
  found.by_type = {{"forward-compute", 1.05}, {"backward-compute", 1.15}};
  EXPECT_THAT(lost_text(diagnosis), testing::StartsWith("0.2000 s of a step, 20.0 %, are lost"));
  EXPECT_THAT(lost_text(diagnosis), testing::HasSubstr("most of it on dp 1 and in backward-compute"));
  EXPECT_THAT(suspects_text(diagnosis), testing::Not(testing::HasSubstr("nothing stands out")));
  EXPECT_THAT(suspects_text(diagnosis), testing::Not(testing::HasSubstr("does not explain")));
  // A finding that explains it; one that is even.
  diagnosis.findings = {finding_of(FindingCode::slow_rank, 0, 2, 0.15, 0.15),
                        finding_of(FindingCode::uneven_sequences, 0, 2, 1e-4, 1e-4)};
  EXPECT_EQ(lost_text(diagnosis), "");
  EXPECT_THAT(suspects_text(diagnosis), testing::Not(testing::HasSubstr("uneven")));
  // Time that no replay has.
  diagnosis.measured_s = 1.5;
  diagnosis.unexplained = 0.33;
  EXPECT_THAT(suspects_text(diagnosis), testing::HasSubstr("the replay does not explain these steps"));
}

TEST(Suspects, PartsOfTheLossAreShares) {
  Diagnosis diagnosis;
  diagnosis.steps = {0};
  diagnosis.step_s = {1};
  diagnosis.stragglers.step_slowdowns = {1.5};
  diagnosis.stragglers.S = 1.5;
  diagnosis.stragglers.M_W = 1.537;
  diagnosis.stragglers.M_S = -0.235;
  diagnosis.mesh = {.dp = 1, .pp = 2, .tp = 1};
  EXPECT_THAT(stragglers_text(diagnosis),
              testing::HasSubstr("as fast as others: 100.0 %, if the last stage was: 0.0 %"));
  diagnosis.mesh.pp = 1;
  EXPECT_THAT(stragglers_text(diagnosis), testing::Not(testing::HasSubstr("last stage")));
  EXPECT_NEAR(nlohmann::json::parse(suspects_json(diagnosis))["slowdown"]["M_W"].get<double>(), 1.537, 1e-12);
}

// Steps alone, as other programs record them.
TEST(Suspects, WorkOnStepsAlone) {
  StepTrace trace{.dp = 4,
                  .pp = 1,
                  .tp = 1,
                  .steps = {0, 1, 2, 3},
                  .ops = {},
                  .start_s = {},
                  .duration_s = {},
                  .ranks = {0, 8, 16, 24}};
  const auto add = [&](OpType type, int sequence, double start, double duration) {
    trace.ops.push_back({type, sequence, 0, 0});
    for (std::size_t lane = 0; lane < trace.lanes(); ++lane) {
      const bool is_slow = lane % 4 == 2 && type != OpType::optimizer;
      trace.start_s.push_back(start + 10 * static_cast<double>(lane / 4));
      trace.duration_s.push_back(duration * (is_slow ? 1.2 : 1));
    }
  };
  add(OpType::forward_compute, 0, 0, 1);
  add(OpType::backward_compute, 0, 1.2, 2);
  add(OpType::optimizer, 0, 3.6, 0.1);
  const Diagnosis diagnosis = find_suspects(trace);
  ASSERT_EQ(diagnosis.findings.size(), 1U);
  EXPECT_EQ(diagnosis.findings[0].code, FindingCode::slow_rank);
  EXPECT_EQ(diagnosis.suspects[0].rank, 16);
  EXPECT_EQ(diagnosis.suspects[0].dp, 2);
}

TEST(Outliers, AreFoundAmongPeersAndInTime) {
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  const std::array<int, 5> peers{0, 0, 0, 1, 1};
  const auto find = [&](std::vector<float> values) { return find_outliers(values, 5, peers, 0.1); };
  EXPECT_TRUE(find({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}).empty());
  const auto found = find({1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 7, 7, 7, 7, 7, 9, 9, 9, 9, 9});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].unit, 1);
  EXPECT_EQ(found[0].first, 2U);
  EXPECT_EQ(found[0].last, 4U);
  EXPECT_NEAR(found[0].excess, 1, 1e-6);
  EXPECT_EQ(found[1].unit, 4);  // of two, the faster one is right
  EXPECT_EQ(found[1].first, 0U);
  EXPECT_TRUE(find({1, 1, 1, 1, 1, 1, 1, 9, 1, 1, 1, 1, 1, 1, 1, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7}).empty());  // one step
  EXPECT_TRUE(find(std::vector<float>(25, kNone)).empty());
  EXPECT_TRUE(find(std::vector<float>(25, 0)).empty());
  EXPECT_TRUE(find_outliers({}, 0, {}, 0.1).empty());
}

}  // namespace
}  // namespace ms::tracepp
