// Where the time of steps went: by hand on a few intervals, and as properties of random ones.
#include "tracepp/steps/breakdown.h"

#include <gtest/gtest.h>

#include <random>

#include "made_run.h"
#include "tracepp/steps/steps.h"

namespace ms::tracepp {
namespace {

std::int64_t told_ns(const StepTime& step) {
  std::int64_t sum =
      step.busy_ns + step.stalled_other_ns + step.copy_ns + step.save_ns + step.data_wait_ns + step.idle_ns;
  for (const AxisTime& axis : step.axes) sum += axis.waiting_ns;
  return sum;
}

void expect_sound(const StepTime& step) {
  EXPECT_EQ(told_ns(step), step.length_ns);
  for (const std::int64_t part :
       {step.busy_ns, step.stalled_ns, step.stalled_other_ns, step.save_ns, step.data_wait_ns, step.idle_ns}) {
    EXPECT_GE(part, 0);
  }
  EXPECT_LE(step.stalled_other_ns, step.stalled_ns);
  for (const AxisTime& axis : step.axes) {
    EXPECT_GE(axis.waiting_ns, 0);
    EXPECT_LE(axis.waiting_ns, axis.exposed_ns);
    EXPECT_LE(axis.exposed_ns, axis.total_ns);
    EXPECT_LE(axis.total_ns, step.length_ns);
  }
}

// Adds a message of a group that is named like this.
void comm(MadeRun& made, const std::string& group, Kind kind, Purpose purpose, std::int64_t begin_us,
          std::int64_t end_us) {
  made.add(0, made.info(kind, purpose, made.group(group, {0, 1})), {begin_us * kUs, end_us * kUs, 0, 0, State::ended});
}

TEST(Breakdown, SplitsAStepIntoItsParts) {
  MadeRun made({.dp = 2});
  made.step_event(0, 0, 1000 * kUs);
  made.add(0, made.info(Kind::data_wait), {0, 90 * kUs, kNoDetail, kNoMicrobatch, State::ended});
  made.section(0, Kind::forward, 100 * kUs, 400 * kUs, 300);
  comm(made, "dp[pp 0 tp 0]", Kind::reduce_scatter, Purpose::grads, 350, 480);
  comm(made, "pp.bwd[dp 0 tp 0] 1>0", Kind::recv, Purpose::backward, 450, 500);
  made.section(0, Kind::backward, 500 * kUs, 800 * kUs, 200);
  comm(made, "tp[dp 0 pp 0]", Kind::all_reduce, Purpose::backward, 550, 600);
  made.add(0, made.info(Kind::save), {800 * kUs, 900 * kUs, kNoDetail, kNoMicrobatch, State::ended});
  comm(made, "world", Kind::all_reduce, Purpose::clip, 880, 1000);

  const Breakdown breakdown = break_down(made.run);
  ASSERT_EQ(breakdown.of_rank(0).size(), 1U);
  EXPECT_TRUE(breakdown.of_rank(1).empty());
  const StepTime& step = breakdown.of_rank(0)[0];
  expect_sound(step);
  EXPECT_EQ(step.length_ns, 1000 * kUs);
  EXPECT_EQ(step.busy_ns, 500 * kUs);
  EXPECT_EQ(step.stalled_ns, 100 * kUs);
  EXPECT_EQ(step.stalled_other_ns, 50 * kUs);
  EXPECT_EQ(step.axis(GroupAxis::tp), (AxisTime{50 * kUs, 50 * kUs, 50 * kUs}));
  EXPECT_EQ(step.axis(GroupAxis::pp), (AxisTime{50 * kUs, 50 * kUs, 50 * kUs}));
  EXPECT_EQ(step.axis(GroupAxis::dp), (AxisTime{130 * kUs, 80 * kUs, 50 * kUs})) << "30 us of it are told of pp";
  EXPECT_NEAR(step.axis(GroupAxis::dp).overlap(), 50.0 / 130, 1e-12);
  EXPECT_EQ(step.axis(GroupAxis::world), (AxisTime{120 * kUs, 120 * kUs, 120 * kUs}));
  EXPECT_EQ(step.save_ns, 80 * kUs);
  EXPECT_EQ(step.data_wait_ns, 90 * kUs);
  EXPECT_EQ(step.idle_ns, 10 * kUs);
}

TEST(Breakdown, CountsOverlappingEventsOnce) {
  MadeRun made({.dp = 2});
  made.step_event(0, 0, 100);
  comm(made, "dp[pp 0 tp 0]", Kind::all_gather, Purpose::params, 0, 0);  // of no length
  const std::uint32_t gather = made.info(Kind::all_gather, Purpose::params, made.group("dp[pp 0 tp 0]", {0, 1}));
  made.add(0, gather, {10, 60, 0, kNoMicrobatch, State::ended});
  made.add(0, gather, {20, 50, 1, kNoMicrobatch, State::ended});
  made.add(0, gather, {40, 80, 2, kNoMicrobatch, State::ended});
  made.add(0, gather, {0, 0, 3, kNoMicrobatch, State::begun});  // did not end: it tells nothing
  made.section(0, Kind::forward, 20, 70);
  made.section(0, Kind::forward, 60, 90);
  const Breakdown breakdown = break_down(made.run);
  const StepTime& step = breakdown.of_rank(0)[0];
  expect_sound(step);
  EXPECT_EQ(step.busy_ns, 70) << "sections of unknown detail compute";
  EXPECT_EQ(step.axis(GroupAxis::dp), (AxisTime{70, 10, 10}));
  EXPECT_EQ(step.idle_ns, 20);
  for (std::size_t k = 0; k < breakdown.kinds.size(); ++k) {
    const KindTime& time = breakdown.kinds_of_rank(0)[k];
    EXPECT_EQ(time.time_ns, 70) << to_string(breakdown.kinds[k].kind) << ": gathers and sections happen to be as long";
    EXPECT_NE(breakdown.kinds[k].kind, Kind::step);
  }
  EXPECT_EQ(breakdown.kinds.size(), 2U);
}

TEST(Breakdown, BeginsAStepAtTheEndOfThePreviousOne) {
  MadeRun made({.dp = 1});
  made.step = 7;
  made.step_event(0, 0, 100);
  made.section(0, Kind::forward, 80, 130);  // over the boundary
  made.step = 8;
  made.step_event(0, 50, 200);  // the host ran ahead
  made.step = 11;
  made.step_event(0, 180, 300);
  const Breakdown breakdown = break_down(made.run);
  ASSERT_EQ(breakdown.of_rank(0).size(), 3U);
  const auto steps = breakdown.of_rank(0);
  EXPECT_EQ(steps[0].busy_ns, 20);
  EXPECT_EQ(steps[1].begin_ns, 100);
  EXPECT_EQ(steps[1].busy_ns, 30);
  EXPECT_EQ(steps[1].idle_ns, 70);
  EXPECT_EQ(steps[2].begin_ns, 200) << "of a step whose predecessor is not known: its own, after the one before";
  for (const StepTime& step : steps) expect_sound(step);
  const StepTime sum = sum_of(steps);
  EXPECT_EQ(sum.length_ns, 300);
  EXPECT_EQ(told_ns(sum), sum.length_ns);
}

TEST(Steps, TakesTheFirstBeginFromTheSumBefore) {
  MadeRun made({.dp = 1});
  made.step = 8;
  made.step_event(0, 50, 200);
  StepSum before;
  before.step = 7;
  before.end_ns = 90;
  made.run.ranks[0].sums.push_back(before);
  const std::vector<StepSpan> spans = step_spans(made.run.ranks[0], made.run.infos);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].begin_ns, 90);
}

TEST(Steps, CountsTheLastExecutionOfARepeatedStep) {
  MadeRun made({.dp = 1});
  std::int64_t now = 0;
  for (const int step : {4, 5, 6, 5, 6, 7}) {
    made.step = step;
    made.step_event(0, now, now + 10);
    now += 10;
  }
  const std::vector<StepSpan> spans = step_spans(made.run.ranks[0], made.run.infos);
  ASSERT_EQ(spans.size(), 4U);
  EXPECT_EQ(spans[1].step, 5);
  EXPECT_EQ(spans[1].end_ns, 40);
  EXPECT_EQ(spans[3].step, 7);
}

TEST(Steps, FindsStepsWithoutStepEvents) {
  MadeRun made({.dp = 1});
  made.step = 3;
  made.section(0, Kind::forward, 10, 30);
  made.section(0, Kind::backward, 40, 90);
  made.step = 4;
  made.section(0, Kind::forward, 95, 120);
  std::vector<StepSpan> spans = step_spans(made.run.ranks[0], made.run.infos);
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].begin_ns, 10);
  EXPECT_EQ(spans[1].begin_ns, 90);
  EXPECT_EQ(spans[1].end_ns, 120);

  for (Event& event : made.run.ranks[0].events) event.step = kNoStep;
  spans = step_spans(made.run.ranks[0], made.run.infos);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].step, kNoStep);
  EXPECT_EQ(spans[0].length_ns(), 110);
  made.run.ranks[0].events.clear();
  EXPECT_TRUE(step_spans(made.run.ranks[0], made.run.infos).empty());
}

TEST(Breakdown, PartsAddUpForRandomEvents) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto any = [&](int below) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(below)); };
    MadeRun made({.dp = 2});
    const std::vector<std::int32_t> groups{made.group("dp[pp 0 tp 0]", {0, 1}), made.group("tp[dp 0 pp 0]", {0, 1}),
                                           made.group("pp.fwd[dp 0 tp 0] 0>1", {0, 1}), made.group("world", {0, 1}),
                                           made.group("?", {0, 1})};
    const std::vector<Kind> kinds{Kind::forward,   Kind::backward,   Kind::optimizer,  Kind::matmul,
                                  Kind::data_wait, Kind::save,       Kind::other,      Kind::all_reduce,
                                  Kind::recv,      Kind::all_gather, Kind::all_reduce, Kind::send};
    for (int rank = 0; rank < 2; ++rank) {
      std::int64_t end = any(100);
      for (int step = 0; step < 4; ++step) {
        made.step = step + (step > 1 && seed % 3 == 0 ? 5 : 0);
        const std::int64_t begin = end;
        end += 500 + any(1000);
        if (seed % 5 != 0) made.step_event(rank, begin - any(50), end);
        for (int i = 0; i < 30; ++i) {
          const Kind kind = kinds[random() % kinds.size()];
          const bool is_comm = trace::is_comm(kind);
          const std::int64_t from = begin + any(1200);
          made.add(rank, made.info(kind, Purpose::none, is_comm ? groups[random() % groups.size()] : -1),
                   {from, from + any(300), random() % 4 == 0 ? kNoDetail : static_cast<std::uint32_t>(any(2)), 0,
                    random() % 10 == 0 ? State::begun : State::ended});
        }
      }
    }
    const Breakdown breakdown = break_down(made.run);
    ASSERT_GE(breakdown.steps.size(), 4U) << seed;
    for (const StepTime& step : breakdown.steps) expect_sound(step);
    ASSERT_FALSE(HasFailure()) << seed;
  }
}

TEST(Breakdown, SplitsThePipelinesSteps) {
  PipelineSpec spec;
  spec.mesh = {.dp = 2, .pp = 3, .tp = 2};
  spec.tp_collectives = 1;
  const RunTrace run = play_pipeline(spec);
  const Breakdown breakdown = break_down(run);
  ASSERT_EQ(breakdown.steps.size(), 12U * 3);
  for (const StepTime& step : breakdown.steps) {
    expect_sound(step);
    EXPECT_EQ(step.idle_ns, 0) << "everything is a section or a message";
    EXPECT_EQ(step.busy_ns, 4 * 3'000'000 + 500'000);
    EXPECT_EQ(step.stalled_other_ns, 0);
    EXPECT_EQ(step.axis(GroupAxis::tp).total_ns, 8 * 50'000);
    EXPECT_EQ(step.axis(GroupAxis::tp).exposed_ns, step.axis(GroupAxis::tp).total_ns);
  }
}

}  // namespace
}  // namespace ms::tracepp
