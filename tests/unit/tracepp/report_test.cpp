// What somebody is told to look at first, and the whole report, of synthetic runs with a known culprit.
#include "tracepp/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tracepp/synthetic.h"

namespace ms::tracepp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Told {
  RunTrace trace;
  Analysis analysis;
  std::vector<Advice> first;
};

Told shown(const SyntheticRun& run) {
  Told result{.trace = make_run(run), .analysis = {}, .first = {}};
  result.analysis = analyse(result.trace);
  result.first = look_first(result.trace, result.analysis);
  return result;
}

SyntheticRun usual() { return {.mesh = {.dp = 4, .pp = 4, .tp = 2}, .microbatches = 8, .steps = 12}; }

TEST(LookFirst, NamesTheCauseBeforeWhatFollowsFromIt) {
  SyntheticRun run = usual();
  run.faults = {{.kind = Fault::Kind::slow_rank, .rank = 13, .factor = 1.3}};
  const Told result = shown(run);
  ASSERT_FALSE(result.first.empty());
  EXPECT_THAT(result.first[0].sentence, HasSubstr("rank 13 "));
  EXPECT_THAT(result.first[0].sentence, HasSubstr("costs"));
  EXPECT_EQ(result.first[0].is, Advice::Is::fault);
  EXPECT_GT(result.first[0].cost_share, 0.01);
  EXPECT_LE(result.first.size(), 3U);
}

TEST(LookFirst, DistinguishesAPauseFromADataStall) {
  SyntheticRun run = usual();
  run.faults = {{.kind = Fault::Kind::pause, .rank = 5, .from_step = 6, .seconds = 1.0}};
  EXPECT_THAT(shown(run).first.at(0).sentence, HasSubstr("rank 5 "));
  EXPECT_THAT(shown(run).first.at(0).sentence, HasSubstr("s once, in step 6)"));
  for (const Advice& advice : shown(run).first)  // of a mean step, not of a median one without the pause
    EXPECT_LE(advice.cost_share, 1) << advice.sentence;
  run.faults = {{.kind = Fault::Kind::data_stall, .rank = 8, .from_step = 3, .seconds = 0.9}};
  EXPECT_THAT(shown(run).first.at(0).sentence, HasSubstr("tokens"));
}

// As of PyTorch's profiler: ranks, groups and steps are known, axes are not.
TEST(LookFirst, NamesTheLastRankWithoutAMesh) {
  for (const bool slow : {true, false}) {
    SyntheticRun run{.mesh = {.dp = 8}, .microbatches = 2, .steps = 12};
    if (slow) run.faults = {{.kind = Fault::Kind::slow_rank, .rank = 5, .factor = 1.3}};
    Told result{.trace = make_run(run), .analysis = {}, .first = {}};
    result.trace.has_mesh = false;
    result.analysis = analyse(result.trace);
    result.first = look_first(result.trace, result.analysis);
    EXPECT_FALSE(result.analysis.diagnosis);
    const auto faults = std::ranges::count(result.first, Advice::Is::fault, &Advice::is);
    EXPECT_EQ(faults, slow ? 1 : 0);
    if (slow) { EXPECT_THAT(result.first.at(0).sentence, StartsWith("rank 5 (n0000) comes last to ")); }
  }
}

TEST(LookFirst, NamesOnlyTheBubbleOfAHealthyRun) {
  const Told result = shown(usual());
  for (const Advice& advice : result.first) {
    EXPECT_THAT(advice.sentence, Not(HasSubstr("rank 1"))) << advice.sentence;
    EXPECT_GE(advice.cost_share, 0.01);
    EXPECT_NE(advice.is, Advice::Is::fault) << advice.sentence;
  }
  ASSERT_FALSE(result.first.empty());
  EXPECT_THAT(result.first[0].sentence, HasSubstr("pipeline ranks are idle"));
  EXPECT_THAT(result.first[0].hint, HasSubstr("microbatches"));
  for (std::size_t i = 1; i < result.first.size(); ++i) {
    EXPECT_LE(result.first[i].cost_share, result.first[i - 1].cost_share);
  }
  EXPECT_THAT(report_text(result.trace, result.analysis), StartsWith("Nothing is wrong"));
}

// Timelines of operations alone do not show why ranks were idle.
TEST(LookFirst, OmitsIdleTimeIfWaitingIsNotRecorded) {
  Told result = shown(usual());
  for (StepTime& step : result.analysis.breakdown.steps) step.idle_ns = step.length_ns / 2;
  const auto says_idle = [&] {
    return std::ranges::any_of(look_first(result.trace, result.analysis), [](const Advice& advice) {
      return advice.sentence.find("nothing in the trace says why") != std::string::npos;
    });
  };
  EXPECT_TRUE(says_idle());
  result.trace.source = &kStragglerAnalysis;
  EXPECT_FALSE(says_idle());
}

TEST(LookFirst, AHangComesBeforeEverything) {
  RunTrace trace = make_run(usual());
  // Rank 6 never began its last communication, and all ranks have written ever since.
  for (RankTrace& rank : trace.ranks) {
    rank.ending = Ending::running;
    std::int64_t last = 0;
    for (const Event& event : rank.events) last = std::max(last, event.end_ns());
    rank.last_flush_ns = last + 600'000'000'000;
  }
  RankTrace& stuck = trace.ranks[6];
  std::size_t cut = stuck.events.size() * 3 / 4;
  while (!trace::is_section(trace.info(stuck.events[cut]).kind)) ++cut;
  stuck.events.resize(cut + 1);
  stuck.events.back().state = State::begun;
  stuck.events.back().duration_ns = 0;
  for (RankTrace& rank : trace.ranks) {
    if (rank.rank == 6) continue;
    const std::int64_t until = stuck.events.back().begin_ns;
    for (Event& event : rank.events) {
      if (event.end_ns() <= until) continue;
      event.state = event.begin_ns <= until ? State::begun : State::issued;
      event.duration_ns = 0;
    }
  }
  Analysis analysis = analyse(trace);
  ASSERT_EQ(analysis.hang.state, RunState::hang);
  const std::vector<Advice> first = look_first(trace, analysis);
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(first[0].sentence, analysis.hang.sentence);
}

TEST(Report, IsCompleteAsTextAndJson) {
  SyntheticRun run = usual();
  run.faults = {{.kind = Fault::Kind::slow_rank, .rank = 13, .factor = 1.3}};
  const Told result = shown(run);
  const std::string text = report_text(result.trace, result.analysis);
  for (const char* part : {"mesh          dp 4 x pp 4 x tp 2", "ranks         32 of 32", "part of a step",
                           "Look first at", "  1. rank 13 "}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, StartsWith("Look first at")) << "the verdict, then how the run ended, then tables";
  EXPECT_LT(text.find("ended  "), text.find("part of a step"));
  const auto json = nlohmann::json::parse(report_json(result.trace, result.analysis).dump());
  EXPECT_EQ(json.at("schema"), 1);
  EXPECT_EQ(json.at("info").at("ranks"), 32);
  EXPECT_EQ(json.at("look_first").size(), result.first.size());
  for (const char* key :
       {"clocks", "effective", "breakdown", "bubble", "messages", "critical_path", "change_points", "hang"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
}

TEST(Report, InfoShowsTheWallClockAndEndings) {
  RunTrace trace = make_run(usual());
  for (RankTrace& rank : trace.ranks) {
    rank.ending = Ending::done;
    rank.device = "cpu";
    rank.clock_ns = rank.events.front().begin_ns;
    rank.realtime_ns = 1'700'000'000'000'000'000;
    rank.last_flush_ns = rank.clock_ns + 90'000'000'000;
  }
  trace.ranks[7].ending = Ending::failed;
  trace.ranks[7].ending_text = "no memory";
  EXPECT_THAT(info_text(trace), HasSubstr("began 2023-11-14T22:13:20Z, last written 2023-11-14T22:14:50Z"));
  const auto json = nlohmann::json::parse(info_json(trace));
  EXPECT_EQ(json.at("began"), "2023-11-14T22:13:20Z");
  EXPECT_EQ(json.at("last_written"), "2023-11-14T22:14:50Z");
  EXPECT_EQ(json.at("world"), 32);
  EXPECT_EQ(json.at("device"), "cpu");
  EXPECT_EQ(json.at("ended").at("done"), 31);
  EXPECT_EQ(json.at("ended").at("failed"), 1);
  EXPECT_EQ(json.at("errors").at(0).at("rank"), 7);
  EXPECT_EQ(json.at("errors").at(0).at("error"), "no memory");
  for (RankTrace& rank : trace.ranks) rank.realtime_ns = rank.clock_ns = 0;
  EXPECT_THAT(info_text(trace), Not(HasSubstr("began")));
  EXPECT_TRUE(nlohmann::json::parse(info_json(trace)).at("began").is_null());
}

TEST(Report, SaysWhyTracesCannotBeReplayed) {
  RunTrace trace;
  trace.source = &kChromeTrace;
  trace.strings.id("work");
  trace.infos.push_back({.kind = Kind::other, .name = 1});
  RankTrace& rank = trace.ranks.emplace_back();
  rank.events = {{.begin_ns = 5, .duration_ns = 10}, {.begin_ns = 20, .duration_ns = 4}};
  const Analysis analysis = analyse(trace);
  EXPECT_FALSE(analysis.diagnosis);
  EXPECT_FALSE(analysis.no_diagnosis.empty());
  EXPECT_THAT(report_text(trace, analysis), HasSubstr("No search for slow ranks"));
}

}  // namespace
}  // namespace ms::tracepp
