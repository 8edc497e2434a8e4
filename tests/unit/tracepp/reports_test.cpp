// Two runs compared, what a run made of its time, and all analyses as text and JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "made_run.h"
#include "tracepp/report/json.h"
#include "tracepp/report/text.h"

namespace ms::tracepp {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;
using testing::HasSubstr;

struct LookedAt {
  explicit LookedAt(RunTrace of) : trace(std::move(of)) {}
  RunTrace trace;
  Matches matches = match_operations(trace);
  Breakdown breakdown = break_down(trace);
  CommReport comms = measure_communication(trace, matches);
  Analysed analysed() const { return {trace, breakdown, comms}; }
};

PipelineSpec small() {
  PipelineSpec spec;
  spec.mesh = {.dp = 2, .pp = 2, .tp = 1};
  return spec;
}

TEST(Diff, IsEmptyForTheSameRun) {
  const LookedAt run(play_pipeline(small()));
  const Diff diff = compare(run.analysed(), run.analysed());
  EXPECT_TRUE(diff.not_comparable.empty());
  EXPECT_EQ(diff.mean_step_s.change(), 0);
  for (const PartDiff& part : diff.parts) EXPECT_EQ(part.s.change(), 0) << part.part;
  ASSERT_EQ(diff.ranks.size(), 4U);
  for (const RankDiff& rank : diff.ranks) EXPECT_EQ(rank.ratio, 1);
}

TEST(Diff, PartsExplainTheDifference) {
  PipelineSpec spec = small();
  const LookedAt before(play_pipeline(spec));
  spec.slowness = [](int rank, int) { return rank == 3 ? 0.5 : 0.0; };
  spec.dp_ns *= 2;
  const LookedAt after(play_pipeline(spec));
  const Diff diff = compare(before.analysed(), after.analysed());
  EXPECT_TRUE(diff.not_comparable.empty());
  EXPECT_GT(diff.mean_step_s.change(), 1e-3);
  double sum_s = 0;
  for (const PartDiff& part : diff.parts) sum_s += part.s.change();
  EXPECT_NEAR(sum_s, diff.mean_step_s.change(), 1e-12);
  EXPECT_EQ(diff.ranks[0].rank, 3);
  EXPECT_GT(diff.ranks[0].ratio, 1.4);
  const std::string text = diff_text(diff);
  EXPECT_THAT(text, testing::ContainsRegex("^[0-9.]+ ms slower a step .*; most of it: rank 3 computes [45]. % longer"));
  EXPECT_THAT(text, HasSubstr("reduce_scatter grads"));
  EXPECT_THAT(text, testing::Not(HasSubstr("+0.000"))) << "only what changed";
  EXPECT_THAT(text, testing::Not(HasSubstr("+0.0%")));
  EXPECT_THAT(diff_text(compare(after.analysed(), before.analysed())), HasSubstr(" ms faster a step "));
  ASSERT_FALSE(diff.comms.empty());
  EXPECT_EQ(diff.comms[0].of_class.axis, GroupAxis::dp);
  EXPECT_NEAR(diff.comms[0].transfer_s.after / diff.comms[0].transfer_s.before, 2, 1e-6);
  EXPECT_NEAR(diff.comms[0].bus_bandwidth.after / diff.comms[0].bus_bandwidth.before, 0.5, 1e-6);
}

TEST(Diff, NamesObstaclesToAComparison) {
  PipelineSpec spec = small();
  const LookedAt before(play_pipeline(spec));
  spec.mesh = {.dp = 4, .pp = 1, .tp = 1};
  spec.microbatches = 8;
  RunTrace other = play_pipeline(spec);
  other.source = &kKineto;
  const Diff diff = compare(before.analysed(), LookedAt(std::move(other)).analysed());
  EXPECT_THAT(diff.not_comparable, ElementsAre("the mesh differs: dp 2 pp 2 tp 1, dp 4 pp 1 tp 1",
                                               "the number of microbatches differs: 4, 8",
                                               "not the same program wrote the traces: ms-trace, kineto"));
  EXPECT_THAT(diff_text(diff), HasSubstr("not comparable: the mesh differs"));
  const LookedAt empty(MadeRun({.dp = 1}).run);
  EXPECT_THAT(compare(before.analysed(), empty.analysed()).not_comparable,
              testing::Contains("the second run has no finished step"));
}

TEST(Diff, ComparesNoTimesWithoutSteps) {
  const LookedAt before(play_pipeline(small()));
  RunTrace unmarked = play_pipeline(small());
  for (RankTrace& rank : unmarked.ranks) {
    std::erase_if(rank.events, [&](const Event& event) { return unmarked.info(event).kind == Kind::step; });
    for (Event& event : rank.events) event.step = kNoStep;
  }
  const LookedAt after(std::move(unmarked));
  const Diff diff = compare(before.analysed(), after.analysed());
  EXPECT_THAT(diff.not_comparable, ElementsAre(HasSubstr("nothing tells where steps of the second run begin")));
  EXPECT_TRUE(diff.parts.empty());
  EXPECT_THAT(diff_text(diff), testing::Not(HasSubstr(" a step")));
  MadeRun dumps({.dp = 2});
  dumps.run.source = &kFlightRecorder;
  dumps.step = kNoStep;
  dumps.add(0, dumps.info(Kind::all_reduce), {0, 1000, 0, kNoMicrobatch, State::ended});
  const LookedAt dumped(std::move(dumps.run));
  EXPECT_THAT(compare(dumped.analysed(), dumped.analysed()).not_comparable,
              ElementsAre(HasSubstr("the first run is dumps of the Flight Recorder"),
                          HasSubstr("the second run is dumps of the Flight Recorder")));
}

TEST(Diff, RunsOfMoreOrFewerRanksAreNotComparable) {
  RunTrace four = play_pipeline(small()), two = play_pipeline(small());
  four.has_mesh = two.has_mesh = false;
  two.ranks.resize(2);
  const LookedAt before(std::move(four)), after(std::move(two));
  EXPECT_THAT(compare(before.analysed(), after.analysed()).not_comparable,
              ElementsAre("the number of ranks differs: 4, 2"));
}

TEST(Effective, SplitsGapsBetweenSteps) {
  MadeRun made({.dp = 2});
  made.run.flops_per_step = 8e12;
  made.run.peak_flops = 1e13;
  constexpr std::int64_t kS = 1'000'000'000;
  made.step_event(0, 0, kS);
  made.step = 1;
  made.step_event(0, kS / 2, 2 * kS);  // issued while the first one ran
  made.add(0, made.info(Kind::save), {2 * kS, 4 * kS, kNoDetail, kNoMicrobatch, State::ended});
  made.add(0, made.info(Kind::data_wait), {4 * kS, 4 * kS + kS / 2, kNoDetail, kNoMicrobatch, State::ended});
  made.step = 2;
  made.step_event(0, 5 * kS, 6 * kS);
  made.step = 6;
  made.step_event(0, 9 * kS, 10 * kS);
  const Effective e = measure_effective(made.run, break_down(made.run));
  EXPECT_EQ(e.steps, 4U);
  EXPECT_EQ(e.missing_steps, 3U);
  EXPECT_NEAR(e.wall_s, 10, 1e-9);
  EXPECT_NEAR(e.in_steps_s, 4, 1e-9);
  EXPECT_NEAR(e.save_s, 2, 1e-9);
  EXPECT_NEAR(e.data_wait_s, 0.5, 1e-9);
  EXPECT_NEAR(e.other_gaps_s, 3.5, 1e-9);
  EXPECT_NEAR(e.effective, 0.4, 1e-9);
  EXPECT_NEAR(e.median_step_s, 1, 1e-9) << "1, 1, 4, 1";
  EXPECT_NEAR(e.mfu, 0.4, 1e-9) << "of both ranks, though one was traced";
  EXPECT_NEAR(e.mfu_of_wall, 8e12 * 4 / (10 * 2e13), 1e-9);
  EXPECT_THAT(effective_text(e), HasSubstr("MFU 40.0% in the median step"));
}

TEST(Effective, HandlesAnEmptyTrace) {
  const RunTrace run = std::move(MadeRun({.dp = 1}).run);
  const Effective e = measure_effective(run, break_down(run));
  EXPECT_EQ(e.steps, 0U);
  EXPECT_EQ(effective_text(e), "no finished step\n");
  EXPECT_TRUE(effective_json(run, e)["told_by_rank"].is_null());
}

TEST(Texts, DescribeTheRun) {
  PipelineSpec spec = small();
  spec.slowness = [](int rank, int) { return rank == 1 ? 0.3 : 0.0; };
  const LookedAt run(play_pipeline(spec));
  const std::string breakdown = breakdown_text(run.trace, run.breakdown);
  EXPECT_THAT(breakdown, HasSubstr("waiting for pp"));
  EXPECT_THAT(breakdown, HasSubstr("reduce_scatter grads"));
  EXPECT_THAT(communication_text(run.trace, run.comms), HasSubstr("dp all_gather params, one host"));
  EXPECT_THAT(communication_text(run.trace, run.comms), HasSubstr("0>1"));
  EXPECT_THAT(communication_text(run.trace, run.comms), HasSubstr("rank 1 (dp 1 pp 0 tp 0, n0)"));
  const CriticalPaths paths = critical_paths(run.trace, run.matches, run.breakdown);
  EXPECT_THAT(critical_path_text(run.trace, paths), HasSubstr("computing             backward"));
  EXPECT_THAT(bubble_text(measure_bubble(run.trace, run.matches, run.breakdown)),
              HasSubstr("1f1b with 2 stages, 1 chunk, microbatches 4"));
  EXPECT_THAT(change_points_text(run.trace, find_change_points(run.trace, run.breakdown)),
              HasSubstr("3 steps: too few"));
  EXPECT_THAT(diff_text(compare(run.analysed(), run.analysed())),
              testing::MatchesRegex("no difference: a step takes .* in both\n"));
}

TEST(Texts, ShowTheLongestKinds) {
  MadeRun made({.dp = 1});
  made.step_event(0, 0, 1'000'000);
  for (int k = 0; k < 10; ++k) {
    const auto kind = static_cast<Kind>(static_cast<int>(Kind::matmul) + k % 9);
    const std::int64_t begin = 1000 * k;
    made.add(0, made.info(kind, k < 9 ? Purpose::none : Purpose::forward),
             {begin, begin + 100 + k, kNoDetail, kNoMicrobatch, State::ended});
  }
  const LookedAt run(std::move(made.run));
  EXPECT_THAT(breakdown_text(run.trace, run.breakdown), HasSubstr("and 2 more: --all"));
  EXPECT_THAT(breakdown_text(run.trace, run.breakdown), testing::Not(HasSubstr("attention  ")));
  EXPECT_THAT(breakdown_text(run.trace, run.breakdown, true), HasSubstr("attention"));
  EXPECT_THAT(breakdown_text(run.trace, run.breakdown, true), testing::Not(HasSubstr("more")));
}

// There is nothing to say of where the time went.
TEST(Texts, ExplainTracesWithoutWork) {
  MadeRun made({.dp = 1});
  made.step_event(0, 0, 1000);
  made.add(0, made.info(Kind::other), {100, 900, kNoDetail, kNoMicrobatch, State::ended});
  made.run.source = &kKineto;
  const LookedAt run(std::move(made.run));
  EXPECT_THAT(breakdown_text(run.trace, run.breakdown), HasSubstr("no computing and no communication"));
}

TEST(Texts, HandleAnEmptyRun) {
  const LookedAt run(RunTrace{});
  EXPECT_EQ(breakdown_text(run.trace, run.breakdown), "no finished step\n");
  EXPECT_EQ(communication_text(run.trace, run.comms), "no communication\n");
  EXPECT_EQ(critical_path_text(run.trace, critical_paths(run.trace, run.matches, run.breakdown)), "no finished step\n");
  EXPECT_EQ(bubble_text(measure_bubble(run.trace, run.matches, run.breakdown)),
            "no pipeline bubble: the mesh is not known\n");
}

TEST(Texts, EscapeNamesFromTraces) {
  MadeRun made({.dp = 3});
  for (int g = 0; g < 3; ++g) {
    const std::uint32_t info =
        made.info(Kind::all_reduce, Purpose::grads, made.group("dp\x1b[31m{}%s" + std::to_string(g), {0, 1, 2}), 8);
    for (std::uint32_t i = 0; i < 6; ++i)
      for (int r = 0; r < 3; ++r)
        made.add(r, info, {i * 1000, i * 1000 + 100 + (g == 2 ? 300 : 0), i, 0, State::ended});
  }
  made.run.ranks[0].host = "n\x1b[0m\xff";
  const LookedAt run(std::move(made.run));
  ASSERT_EQ(run.comms.suspects.size(), 1U);
  EXPECT_THAT(communication_text(run.trace, run.comms), HasSubstr("dp?[31m{}%s2"));
  EXPECT_EQ(rank_text(run.trace, 0), "rank 0 (dp 0 pp 0 tp 0, n?[0m?)");
  EXPECT_NO_THROW(ordered_json::parse(dump(rank_json(run.trace, 0))));
}

TEST(Json, HasStableKeys) {
  const LookedAt run(play_pipeline(small()));
  const auto parsed = [](const Json& json) { return ordered_json::parse(dump(json)); };
  const auto keys = [](const ordered_json& json) {
    std::vector<std::string> names;
    for (const auto& [name, value] : json.items()) names.push_back(name);
    return names;
  };
  const ordered_json breakdown = parsed(breakdown_json(run.trace, run.breakdown));
  EXPECT_THAT(keys(breakdown), ElementsAre("rank_steps", "mean", "ranks", "kinds"));
  const ordered_json& mean = breakdown["mean"];
  EXPECT_THAT(keys(mean), ElementsAre("step_s", "busy_s", "stalled_s", "stalled_other_s", "copy_s", "save_s",
                                      "data_wait_s", "idle_s", "axes"));
  double told_s = mean["busy_s"].get<double>() + mean["stalled_other_s"].get<double>() + mean["idle_s"].get<double>();
  for (const auto& [axis, time] : mean["axes"].items()) told_s += time["waiting_s"].get<double>();
  EXPECT_NEAR(told_s, mean["step_s"].get<double>(), 1e-12);
  EXPECT_EQ(breakdown["ranks"].size(), 4U);
  EXPECT_EQ(breakdown["ranks"][3]["pp"], 1);

  const ordered_json comms = parsed(communication_json(run.trace, run.comms));
  EXPECT_THAT(keys(comms), ElementsAre("classes", "sizes", "edges", "groups", "suspects", "ranks"));
  EXPECT_THAT(keys(comms["edges"][0]), ElementsAre("from_stage", "to_stage", "purpose", "channels", "complete",
                                                   "transfer_p50_s", "transfer_p99_s", "bus_bytes_per_s", "ratio"));
  const ordered_json path =
      parsed(critical_path_json(run.trace, critical_paths(run.trace, run.matches, run.breakdown)));
  EXPECT_THAT(keys(path), ElementsAre("known", "steps", "time_s", "by_kind", "by_rank"));
  double share = 0;
  for (const ordered_json& kind : path["by_kind"]) share += kind["share"].get<double>();
  EXPECT_NEAR(share, 1, 1e-12);
  EXPECT_THAT(keys(parsed(change_points_json(run.trace, find_change_points(run.trace, run.breakdown)))),
              ElementsAre("steps", "long_enough", "points", "pauses", "rank_shifts"));
  EXPECT_THAT(keys(parsed(diff_json(compare(run.analysed(), run.analysed())))),
              ElementsAre("schema", "not_comparable", "median_step_s", "mean_step_s", "parts", "axes", "kinds",
                          "messages", "ranks"));
  const ordered_json bubble = parsed(bubble_json(measure_bubble(run.trace, run.matches, run.breakdown)));
  EXPECT_EQ(bubble["known"], true);
  EXPECT_EQ(bubble["by_stage"].size(), 2U);
  EXPECT_TRUE(parsed(effective_json(run.trace, measure_effective(run.trace, run.breakdown)))["mfu"].is_null());
}

}  // namespace
}  // namespace ms::tracepp
