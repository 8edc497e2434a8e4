// Replays by hand, and what holds of all of them: no request waits longer than the grace time, GPUs are never used
// twice, the same input gives the same outcome.
#include "loan/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "base/text.h"
#include "loan/report.h"
#include "loan/runs.h"

namespace ms::loan {
namespace {

Policy small_policy() {
  Policy policy{.cluster = {.train_nodes = 2, .inference_nodes = 4, .gpus_per_node = 8}};
  policy.loan = {.poll_s = 10,
                 .grace_s = 60,
                 .lend_interval_s = 100,
                 .reserve_quantile = 1,
                 .reserve_window_s = 0,
                 .headroom_percent = 0};
  policy.jobs.scale_overhead_s = 10;
  policy.jobs.preempt_overhead_s = 20;
  policy.schedule.interval_s = 100;
  return policy;
}

TraceJob job(double submit_s, double work_s, int gpus, int max_gpus = 0) {
  return {
      .submit_s = submit_s, .work_s = work_s, .estimate_s = work_s, .gpus = gpus, .max_gpus = std::max(gpus, max_gpus)};
}

JobTrace trace_of(std::vector<TraceJob> jobs) {
  const double span_s = jobs.back().submit_s;
  return {.jobs = std::move(jobs), .curves = {}, .span_s = span_s};
}

Outcome replayed(const JobTrace& trace, const Demand& demand, const Policy& policy, std::string_view scheduler) {
  return replay(trace, demand, policy, *find_scheduler(scheduler));
}

std::vector<double> ends(const Outcome& outcome) {
  std::vector<double> times;
  for (const JobOutcome& each : outcome.jobs) times.push_back(each.end_s);
  return times;
}

using testing::ElementsAre;

TEST(LoanReplay, OrdersDifferAsTheirNamesSay) {
  // 16 GPUs: the first job leaves 8, the second needs all, the third is short, the fourth long.
  const JobTrace trace = trace_of({job(0, 100, 8), job(1, 50, 16), job(2, 90, 8), job(3, 200, 8)});
  const Demand busy{.steps = {{0, 4}}};
  EXPECT_THAT(ends(replayed(trace, busy, small_policy(), "fifo")), ElementsAre(100, 150, 240, 350));
  EXPECT_THAT(ends(replayed(trace, busy, small_policy(), "backfill")), ElementsAre(100, 150, 92, 350));
  EXPECT_THAT(ends(replayed(trace, busy, small_policy(), "sjf")), ElementsAre(100, 342, 92, 292));
}

TEST(LoanReplay, ALoanEndsTheQueueAndIsTakenBack) {
  // The long job runs half on a loaned node until inference needs all of its own; it loses the notice and the overhead.
  const JobTrace trace = trace_of({job(0, 1000, 16), job(0, 500, 8)});
  const Demand demand{.steps = {{0, 3}, {205, 4}}};
  const Outcome without = replayed(trace, demand, small_policy(), "sjf");
  EXPECT_THAT(ends(without), ElementsAre(1500, 500));
  const Outcome with = replayed(trace, demand, small_policy(), "loaning");
  // Runs from 0 to 210 (the poll), saves until 260, waits until the short job ends, 20 s to start, 790 s of work left.
  EXPECT_THAT(ends(with), ElementsAre(1310, 500));
  EXPECT_EQ(with.preemptions, 1);
  EXPECT_EQ(with.reclaimed_nodes, 1);
  EXPECT_DOUBLE_EQ(with.request_wait_max_s, 55);
  EXPECT_DOUBLE_EQ(with.jobs[0].queue_s, 500 - 260);
}

TEST(LoanReplay, AnElasticJobGrowsOnLoanedNodesAndShrinksInPlaceOfPreemption) {
  const JobTrace trace = trace_of({job(0, 1000, 16, 32)});
  const Demand demand{.steps = {{0, 2}, {500, 4}}};
  const Outcome outcome = replayed(trace, demand, small_policy(), "both");
  EXPECT_EQ(outcome.preemptions, 0);
  EXPECT_EQ(outcome.reclaimed_nodes, 2);
  // 10 s to scale, 490 s at twice the speed, 10 s to scale, and the 20 s that are left.
  EXPECT_THAT(ends(outcome), ElementsAre(testing::DoubleNear(530, 1e-9)));
  EXPECT_THAT(ends(replayed(trace, demand, small_policy(), "elastic")), ElementsAre(1000));
}

TEST(LoanReplay, NeededWorkersTakeTheGpusOfExtraOnes) {
  const JobTrace trace = trace_of({job(0, 1000, 8, 16), job(250, 100, 8)});
  const Demand busy{.steps = {{0, 4}}};
  const Outcome outcome = replayed(trace, busy, small_policy(), "elastic");
  EXPECT_DOUBLE_EQ(outcome.jobs[1].queue_s, 0);
  EXPECT_DOUBLE_EQ(outcome.jobs[1].end_s, 350);
  EXPECT_LT(outcome.jobs[0].end_s, 1000);
}

TEST(LoanReplay, ReserveIsTheQuantileOfRecentDemandWithHeadroom) {
  const Demand demand{.steps = {{0, 10}, {100, 30}, {110, 20}}};
  LoanConfig loan{.reserve_quantile = 0.5, .reserve_window_s = 100, .headroom_percent = 0};
  EXPECT_EQ(kept_nodes(demand, loan, 150), 20);  // of 50 s of 10, 10 s of 30, 40 s of 20: but 20 are needed now
  loan.reserve_quantile = 0.95;
  EXPECT_EQ(kept_nodes(demand, loan, 150), 30);
  loan.reserve_window_s = 0;
  EXPECT_EQ(kept_nodes(demand, loan, 150), 20);
  loan.headroom_percent = 2;
  EXPECT_EQ(kept_nodes(demand, loan, 150), 21);
  EXPECT_EQ(needed_nodes(0, loan), 0);
}

TEST(LoanReplay, ChoicesCountWhatChangingCosts) {
  const TraceJob elastic{.gpus = 8, .max_gpus = 24};
  const auto none = worker_choices(elastic, SpeedCurve(), 8, 100, 0, 10);
  ASSERT_EQ(none.size(), 2U);
  EXPECT_EQ(none[1].weight, 16);
  EXPECT_DOUBLE_EQ(none[0].value, 40);
  const auto one = worker_choices(elastic, SpeedCurve(), 8, 100, 1, 10);
  EXPECT_DOUBLE_EQ(one[0].value, 60);
  EXPECT_DOUBLE_EQ(one[1].value, 100 - 100 / 3.0);
}

// Random jobs and a demand that goes up and down as it likes, at any times.
struct RandomReplay {
  explicit RandomReplay(std::uint64_t seed) {
    policy = small_policy();
    policy.cluster = {.train_nodes = 3, .inference_nodes = 12, .gpus_per_node = 4};
    policy.loan.reserve_quantile = uniform(seed, 1, 0);
    policy.loan.reserve_window_s = 600 * uniform(seed, 1, 1);
    policy.loan.headroom_percent = 30 * uniform(seed, 1, 2);
    policy.loan.lend_interval_s = 1 + 50 * uniform(seed, 1, 3);
    std::vector<TraceJob> jobs;
    double submit_s = 0;
    for (std::uint64_t i = 0; i < 60; ++i) {
      submit_s += 60 * uniform(seed, 2, i);
      const int gpus = 1 + static_cast<int>(uniform_below(seed, 3, i, 12));
      jobs.push_back(job(submit_s, 300 * uniform(seed, 4, i), gpus, i % 2 == 0 ? 3 * gpus : gpus));
    }
    trace = trace_of(std::move(jobs));
    double time_s = 0;
    for (std::uint64_t i = 0; time_s < trace.span_s; ++i) {
      demand.steps.emplace_back(time_s, static_cast<int>(uniform_below(seed, 5, i, 13)));
      time_s += (i % 3 == 0 ? 200 : 8) * uniform(seed, 6, i) + 1e-3;
    }
  }
  Policy policy;
  JobTrace trace;
  Demand demand;
};

TEST(LoanReplay, NoRequestWaitsLongerThanTheGraceTime) {
  int waited = 0, preempted = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const RandomReplay it(seed);
    for (const Scheduler& scheduler : schedulers()) {
      const Outcome outcome = replay(it.trace, it.demand, it.policy, scheduler);
      ASSERT_LE(outcome.request_wait_max_s, it.policy.loan.grace_s + 1e-6) << seed << ' ' << scheduler.name;
      waited += outcome.request_wait_max_s > 0;
      preempted += outcome.preemptions;
      for (std::size_t i = 0; i < outcome.jobs.size(); ++i) {
        const TraceJob& traced = it.trace.jobs[i];
        const double jct_s = outcome.jobs[i].end_s - traced.submit_s;
        ASSERT_GE(jct_s * traced.max_gpus / traced.gpus + 1e-6, traced.work_s);  // no faster than with all its workers
        ASSERT_GE(jct_s + 1e-6, outcome.jobs[i].queue_s);
      }
      for (const Sample& sample : outcome.samples) {
        ASSERT_LE(sample.own_busy_gpus, it.policy.train_gpus());
        ASSERT_LE(sample.loaned_nodes, it.policy.cluster.inference_nodes);
        ASSERT_LE(sample.extra_gpus, sample.own_busy_gpus + sample.loaned_busy_gpus);
      }
    }
  }
  EXPECT_GT(waited, 500);  // of 900 replays that lend: the curves do ask for what is on loan
  EXPECT_GT(preempted, 1000);
}

TEST(LoanReplay, TheSameInputGivesTheSameOutcome) {
  const RandomReplay it(7);
  for (const Scheduler& scheduler : schedulers()) {
    const Outcome a = replay(it.trace, it.demand, it.policy, scheduler);
    const Outcome b = replay(it.trace, it.demand, it.policy, scheduler);
    EXPECT_EQ(ends(a), ends(b)) << scheduler.name;
    EXPECT_EQ(samples_csv(it.trace, std::vector{a}), samples_csv(it.trace, std::vector{b})) << scheduler.name;
  }
}

// An event is something that happens: time in which nothing does costs nothing.
TEST(LoanReplay, LongJobsAreAsManyEventsAsShortOnes) {
  const auto events = [](std::int64_t num_jobs, double work_s, const Scheduler& scheduler) {
    std::vector<TraceJob> jobs;
    for (std::int64_t i = 0; i < num_jobs; ++i) jobs.push_back(job(static_cast<double>(i), work_s, 16, 32));
    Policy policy = small_policy();
    policy.loan.reserve_window_s = 1000;
    return replay(trace_of(std::move(jobs)), {.steps = {{0, 2}, {500, 4}, {7000, 1}}}, policy, scheduler).events;
  };
  for (const Scheduler& scheduler : schedulers()) {
    const std::int64_t few = events(200, 1e9, scheduler);
    EXPECT_NEAR(static_cast<double>(events(200, 1e5, scheduler)), static_cast<double>(few), 20) << scheduler.name;
    EXPECT_LE(events(2000, 1e9, scheduler), 11 * few) << scheduler.name;
    EXPECT_LE(few, 200 * 6 + 100) << scheduler.name;
  }
}

TEST(LoanReport, SamplesHoldUntilTheNextOne) {
  const JobTrace trace = trace_of({job(0, 10, 8), job(1e6, 10, 8)});
  const Outcome outcome = replayed(trace, {.steps = {{0, 4}, {700, 3}}}, small_policy(), "fifo");
  EXPECT_LT(outcome.samples.size(), 10U);
  const std::vector<std::string> lines = split(samples_csv(trace, std::vector{outcome}), '\n');
  ASSERT_EQ(lines.size(), 3336U);
  EXPECT_THAT((std::vector{lines[1], lines[2], lines[3], lines[4], lines[3334]}),
              ElementsAre("fifo,0,0,0,0,0,4,1", "fifo,300,0,0,0,0,4,0", "fifo,600,0,0,0,0,4,0", "fifo,900,0,0,0,0,3,0",
                          "fifo,999900,0,0,0,0,3,0"));
}

TEST(LoanReport, MeanAndP95) {
  std::vector<double> values;
  for (int i = 1; i <= 100; ++i) values.push_back(i);
  EXPECT_DOUBLE_EQ(summary_of(values).mean_s, 50.5);
  EXPECT_DOUBLE_EQ(summary_of(values).p95_s, 95);
  EXPECT_DOUBLE_EQ(summary_of({3}).p95_s, 3);
  EXPECT_DOUBLE_EQ(summary_of({}).mean_s, 0);
}

}  // namespace
}  // namespace ms::loan
