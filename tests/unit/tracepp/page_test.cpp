#include "tracepp/page/page.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <cmath>

#include <cstring>

#include "base/text.h"
#include "tracepp/page/expected.h"
#include "tracepp/page/metrics.h"
#include "tracepp/synthetic.h"

namespace ms::tracepp {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

std::string page_of(RunTrace& trace) { return report_page(trace, analyse(trace), {}); }

// The JSON document of a page.
Json data_of(const std::string& page) {
  const std::string head = "<script type=\"application/json\" id=\"run\">";
  const std::size_t begin = page.find(head) + head.size();
  return Json::parse(page.substr(begin, page.find("</script>", begin) - begin), {.max_depth = 8});
}

TEST(Page, NamesTheSlowRankAndMarksIt) {
  SyntheticRun run{.mesh = {.dp = 2, .pp = 2, .tp = 2}, .steps = 12};
  run.faults = {{.kind = Fault::Kind::slow_rank, .rank = 5, .factor = 1.5}};
  RunTrace trace = make_run(run);
  const std::string page = page_of(trace);
  EXPECT_THAT(page, HasSubstr("<li class=\"bad\">rank 5 (dp 0 pp 1 tp 1"));
  const Json data = data_of(page);
  ASSERT_GE(data.at("marks").size(), 1U);
  EXPECT_EQ(data.at("marks")[0].get<int>("rank"), 5);
  EXPECT_EQ(data.get<int>("rank"), 5) << "the charts begin with it";
  EXPECT_EQ(data.at("marks")[0].get<std::string>("why"), "slow_rank");
  EXPECT_EQ(data.at("steps").at("numbers").size(), 12U);
  EXPECT_TRUE(data.at("hang").is_null());
  EXPECT_EQ(data.at("maps").size(), 3U);
  for (const char* column : {"cells.forward", "cells.waiting", "measure0", "measure0.medians"})
    EXPECT_TRUE(data.at("columns").contains(column)) << column;
  EXPECT_TRUE(data.at("timeline").at("columns").contains("event.begin"));
  EXPECT_GT(page.find("id=\"events\""), page.rfind("<script>")) << "the scripts begin before the events are there";
}

TEST(Page, AHealthyRunHasNoMark) {
  RunTrace trace = make_run({.mesh = {.dp = 2, .pp = 2, .tp = 1}, .steps = 12});
  EXPECT_EQ(data_of(page_of(trace)).at("marks").size(), 0U);
}

TEST(Page, HasTheLoadOfExperts) {
  RunTrace trace = make_run({.mesh = {.dp = 2, .pp = 2, .tp = 1}, .steps = 3});
  const Analysis analysis = analyse(trace);
  EXPECT_FALSE(data_of(report_page(trace, analysis, {})).contains("experts"));
  const std::string page = report_page(
      trace, analysis, {}, {.expert_loads = trace::ExpertLoads{.step = 7, .by_layer = {{2, 1, 0}, {1, 1, 1}}}});
  EXPECT_EQ(data_of(page).at("experts").dump(), R"({"layers":2,"experts":3})");
  EXPECT_EQ(data_of(page).at("columns").at("experts").get<int>("count"), 6);
  EXPECT_THAT(page, HasSubstr("1 of 6 experts had less than a tenth"));
}

TEST(Page, TextOfATraceIsText) {
  RunTrace trace = make_run({.mesh = {.dp = 2, .pp = 2, .tp = 1}, .steps = 3});
  const std::string attack = "</script><script>alert(1)</script>\"'\x1b[2J\xe2\x80\xae<!--";
  trace.run = attack;
  trace.ranks[1].host = attack + std::string(1 << 20, 'x');
  trace.groups[0].name = attack;
  for (EventInfo& info : trace.infos) info.name = trace.strings.id(attack);
  const std::string page = page_of(trace);
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  EXPECT_THAT(page, Not(HasSubstr("<!--")));
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
  EXPECT_THAT(page, Not(HasSubstr("\xe2\x80\xae")));
  EXPECT_LT(page.size(), 512U << 10);
}

TEST(Page, ATraceWithoutStepsHasAPage) {
  RunTrace trace;
  EXPECT_THAT(page_of(trace), HasSubstr("nothing can be said"));
}

TEST(Expected, NamesThePartThatTakesLonger) {
  Expected expected{.cluster = "c.toml", .diff = {}};
  const auto sentence = [&](double before, double after) {
    expected.diff.mean_step_s = {before, after};
    expected.diff.parts = {{"waiting for dp", {0.1, 0.1 + after - before}}, {"busy", {before, before}}};
    return expected_sentence(expected);
  };
  EXPECT_THAT(sentence(6.4, 7.4), HasSubstr("1.0s (16 %) more than the 6.4s expected of c.toml: waiting for dp +1.0s"));
  EXPECT_THAT(sentence(6.4, 5.4), HasSubstr("less than"));
  EXPECT_THAT(sentence(6.4, 6.5), HasSubstr("as expected"));
  EXPECT_THAT(sentence(6.4, 13), HasSubstr("does not describe these machines"));
  EXPECT_THAT(sentence(6.4, 0.3), HasSubstr("does not describe these machines"));
  EXPECT_EQ(sentence(0, 1), "no step to compare with an expected one");
  EXPECT_EQ(known_sentence(expected), "") << "what cannot be known is not said";
  expected.culprit = "rank 5 computes longer, on n17";
  EXPECT_THAT(sentence(6.4, 7.4), HasSubstr("waiting for dp +1.0s; rank 5 computes longer, on n17"));
  expected.varies_s = 0.6;
  EXPECT_THAT(sentence(6.4, 7.4),
              EndsWith("single steps vary by 600ms, so the mean may be chance; " + expected.culprit))
      << "who is slower than its peers is so whatever the mean says";
  EXPECT_THAT(sentence(6.4, 6.5), EndsWith("as expected: 6.4s; " + expected.culprit));
  expected.culprit = "";
  expected.unknown = "nothing stands out";
  EXPECT_THAT(sentence(6.4, 7.4), EndsWith("so the mean may be chance; nothing stands out"));
  expected.unknown = "";
  expected.single_step = "step 37 took 900ms more than its neighbours";
  EXPECT_THAT(sentence(6.4, 6.5), EndsWith("as expected: 6.4s; step 37 took 900ms more than its neighbours"));
  expected.diff.not_comparable = {"the mesh differs"};
  EXPECT_EQ(known_sentence(expected), "");
}

// A run whose sections vary as on busy machines: a tenth of them take up to twice as long.
SyntheticRun busy_run(std::uint64_t seed) {
  return {.mesh = {.dp = 2, .pp = 2, .tp = 2}, .steps = 30, .seed = seed, .noise = 0.04, .outlier_rate = 0.1};
}

Expected compared_to_itself(const SyntheticRun& run) {
  RunTrace trace = make_run(run);
  const Analysis analysis = analyse(trace);
  Expected expected{.cluster = "c.toml", .diff = {}};
  expected.diff.mean_step_s = {analysis.effective.median_step_s, analysis.effective.median_step_s};
  name_causes(expected, trace, analysis);
  return expected;
}

TEST(Expected, NamesARankThatIsSurelySlowThoughTheMeanIsAsExpected) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SyntheticRun run = busy_run(seed);
    const int slow = static_cast<int>(seed % 8);
    run.faults = {{.kind = Fault::Kind::slow_rank, .rank = slow, .factor = seed % 2 == 0 ? 1.5 : 1.25}};
    const Expected expected = compared_to_itself(run);
    EXPECT_THAT(expected.culprit, HasSubstr(fmt::format("rank {} (", slow))) << seed;
    EXPECT_THAT(expected.culprit, HasSubstr("longer than ranks with the same work"));
    EXPECT_THAT(expected.culprit, HasSubstr(", confidence 0.")) << expected.culprit;
    EXPECT_THAT(expected.culprit, Not(HasSubstr("; "))) << "no other rank: " << expected.culprit;
    EXPECT_THAT(expected_sentence(expected), HasSubstr("as expected"));
  }
}

TEST(Expected, AccusesNobodyInHealthyRuns) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) EXPECT_EQ(compared_to_itself(busy_run(seed)).culprit, "") << seed;
}

TEST(Expected, JoinsWaitsThatOnlyChanceTellsApart) {
  Diff diff;
  diff.mean_step_s = {1, 1.2};
  diff.parts = {{"waiting for tp", {0.02, 0.45}}, {"stalled", {0.5, 0.2}}, {"waiting for pp", {0.1, 0.18}}};
  join_waits_for_cores(diff);
  ASSERT_EQ(diff.parts.size(), 2U);
  EXPECT_EQ(diff.parts[0].part, "waiting for a core or for tp");
  EXPECT_NEAR(diff.parts[0].s.change(), 0.13, 1e-9);
  EXPECT_EQ(diff.parts[1].part, "waiting for pp") << "the largest change first";
  diff.parts = {{"waiting for tp", {0.02, 0.45}}, {"stalled", {0, 0.2}}};
  join_waits_for_cores(diff);
  EXPECT_EQ(diff.parts.size(), 2U) << "ranks with cores of their own";
}

TEST(Expected, SaysWhyNobodyIsNamed) {
  RunTrace trace = make_run(busy_run(1));
  Analysis analysis = analyse(trace);
  Expected expected{.cluster = "c.toml", .diff = {}};
  expected.diff.mean_step_s = {1, 1.5};
  name_causes(expected, trace, analysis);
  EXPECT_THAT(expected_sentence(expected), HasSubstr("; nothing ")) << expected_sentence(expected);
  analysis.diagnosis.reset();
  analysis.no_diagnosis = "one rank has no trace";
  name_causes(expected, trace, analysis);
  EXPECT_THAT(expected_sentence(expected), EndsWith("; which rank it is cannot be known: one rank has no trace"));
}

TEST(Curves, OfALongRunAreMeans) {
  std::vector<StepMetrics> steps;
  for (std::int64_t step = 1; step <= 5000; ++step) {
    steps.push_back({.step = step, .loss = step % 2 == 0 ? 3.0 : 1.0, .step_s = 0.5});
  }
  steps[10].loss = kNotWritten;
  const std::vector<StepMetrics> points = thinned(steps);
  ASSERT_EQ(points.size(), 1667U);
  EXPECT_EQ(points.front().step, 3);
  EXPECT_EQ(points.back().step, 5000);
  EXPECT_DOUBLE_EQ(points[0].loss, 5.0 / 3);
  EXPECT_DOUBLE_EQ(points[3].loss, 3.0) << "without the one that is missing";
  EXPECT_TRUE(std::isnan(points[0].tokens_per_s));
  EXPECT_EQ(thinned({steps.begin(), steps.begin() + 3}).size(), 3U);
}

TEST(Curves, AreOfEveryRunThatIsNamed) {
  Columns columns;
  Curve curve{.dir = "a\x1b</script>", .points = {{.step = 1, .loss = 2}, {.step = 2, .loss = 1.5}}};
  const Json data = curves_data({curve, {.dir = "empty"}, curve}, columns);
  ASSERT_EQ(data.size(), 2U) << "a run without a step has no curve";
  EXPECT_EQ(data.at(1).at("column").get<std::string>(), "curve1.");
  EXPECT_TRUE(columns.directory().contains("curve1.loss"));
  EXPECT_THAT(curves_html({curve}), Not(HasSubstr("</script>")));
  EXPECT_THAT(curves_text({curve}), Not(HasSubstr("\x1b")));
  EXPECT_EQ(curves_text({}), "");
}

TEST(Columns, LieOneAfterTheOther) {
  Columns columns;
  columns.add("a", std::span<const std::uint8_t>(std::vector<std::uint8_t>{1, 2, 3}));
  columns.add("b", std::span<const double>(std::vector<double>{0.5}));
  EXPECT_EQ(columns.directory().dump(), R"({"a":{"type":"u8","at":0,"count":3},"b":{"type":"f64","at":8,"count":1}})");
  double value = 0;
  std::memcpy(&value, columns.bytes().data() + 8, sizeof value);
  EXPECT_EQ(value, 0.5);
}

TEST(Timeline, OfALargeRunShowsTheMarkedRankAndItsNeighbours) {
  RunTrace trace = make_run({.mesh = {.dp = 16, .pp = 4, .tp = 2}, .steps = 2});
  const ExportOptions shown = choose_timeline(trace, {{.rank = 77, .why = "slow_rank", .first_step = 1}}, {});
  EXPECT_EQ(shown.ranks.size(), kMostRanks);
  EXPECT_EQ(shown.ranks.front(), 77);
  for (const int peer : trace.mesh.along(mesh::Axis::pp, 77)) EXPECT_TRUE(shown.has_rank(peer)) << peer;
  ExportOptions asked;
  asked.ranks = {3};
  EXPECT_THAT(choose_timeline(trace, {}, asked).ranks, ElementsAre(3));
}

TEST(Metrics, WholeLinesAreRead) {
  const std::string text =
      "t\": 1}\n{\"step\": 2, \"loss\": 1.5, \"step_s\": 0.25, \"seconds\": {\"data_wait\": 0.05}}\nnot JSON\n"
      "{\"step\": \"3\"}\n{\"step\": 4, \"loss\": null}\n{\"step\": 5";
  const MetricsTail tail = parse_metrics(text, true);
  ASSERT_EQ(tail.steps.size(), 2U);
  EXPECT_EQ(tail.not_understood, 2U);
  EXPECT_EQ(tail.steps[0].step, 2);
  EXPECT_EQ(tail.steps[0].loss, 1.5);
  EXPECT_EQ(tail.steps[0].step_s, 0.25);
  EXPECT_EQ(tail.steps[0].data_wait_s, 0.05);
  EXPECT_EQ(tail.steps[1].step, 4);
  EXPECT_TRUE(std::isnan(tail.steps[1].loss));
  EXPECT_TRUE(parse_metrics("", false).steps.empty());
  EXPECT_TRUE(parse_metrics("no line", true).steps.empty());
}

}  // namespace
}  // namespace ms::tracepp
