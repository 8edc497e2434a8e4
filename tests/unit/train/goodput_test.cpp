// Jobs with failures: closed forms, cases counted by hand, what the driver was measured to need.
#include "train/simulate/goodput.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ckpt/interval.h"
#include "train/simulate/failure_study.h"

namespace ms::train {
namespace {

constexpr double kHourOfJob_s = 3600;

// Nothing but what a test adds takes any time.
JobOptions job_of(int nodes, int spares, double hours) {
  JobOptions job{
      .nodes = nodes, .spares = spares, .seconds = hours * kHourOfJob_s, .iteration_s = 10, .interval_s = 600};
  job.recovery = {
      .launch_s = 0, .load_s = 0, .requeue_s = 0, .stall_s = 0, .write_s = 0, .located = 1, .operator_s = 0};
  return job;
}

double sum_of(const TimeParts& parts) { return std::accumulate(parts.begin(), parts.end(), 0.0); }

// Daly's model, eq. 20 (see tests/unit/ckpt/interval_test.cpp), with restarts: every interval with its save is begun
// again until no failure hits it, failures being Poisson.
TEST(Goodput, AgreesWithTheClosedFormForExponentialFaults) {
  for (const double interval_s : {600.0, 1800.0, 7200.0}) {
    JobOptions job = job_of(100, 0, 24 * 200);
    job.interval_s = interval_s;
    job.recovery.launch_s = 20;
    job.recovery.load_s = 10;
    job.recovery.stall_s = job.recovery.write_s = 30;
    job.recovery.max_attempts = 1'000'000;
    const double mtbf_s = 2 * kHourOfJob_s;
    const FaultSource source{.hazards = {{.per_node_day = kSecondsPerDay / mtbf_s / 100}}};
    std::vector<double> effective;
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      effective.push_back(simulate_job(job, draw_faults(source, 100, job.seconds, seed), seed).effective());
    }
    const double down_s = detection_s(job, FaultKind::crash) + judgement_s(FaultKind::crash) + 30;
    const double expected = interval_s / (mtbf_s * std::exp(down_s / mtbf_s) * std::expm1((interval_s + 30) / mtbf_s));
    const Estimate got = estimate(effective);
    EXPECT_LT(got.error.value(), 0.01);
    EXPECT_NEAR(got.mean, expected, 0.003 + got.error.value()) << interval_s;
  }
}

TEST(Goodput, CountsOneCrashByHand) {
  JobOptions job = job_of(4, 1, 10);
  job.recovery.launch_s = 100;
  job.recovery.load_s = 50;
  job.recovery.stall_s = 20;
  job.recovery.write_s = 60;
  // Trains from 100 s on in cycles of 600 + 20 s; the crash is 50 s into the third cycle.
  const std::vector<NodeFault> faults{{.begin_s = 100 + 2 * 620 + 50, .node = 2, .repair_s = kHourOfJob_s}};
  const JobOutcome got = simulate_job(job, faults, 0);
  const double detect_s = watch::WatchLimits{}.ending_s + watch::WatchLimits{}.every_s / 2;
  const double judge_s = watch::kKill_s + watch::kVerdict_s;
  EXPECT_EQ(got.interruptions, 1);
  EXPECT_EQ(got.requeues, 0);
  EXPECT_NEAR(got.at(TimePart::detect), detect_s, 1e-9);
  EXPECT_NEAR(got.at(TimePart::diagnose), judge_s, 1e-9);
  EXPECT_NEAR(got.at(TimePart::restart), 100 + 150, 1e-9);
  EXPECT_NEAR(got.at(TimePart::lost), 50, 1e-6);  // the second save was committed 10 s before
  EXPECT_NEAR(got.at(TimePart::waiting), 0, 1e-9);
  const double rest_s = job.seconds - (100 + 1290 + detect_s + judge_s + 150);
  EXPECT_NEAR(got.at(TimePart::save), 40 + 20 * std::floor(rest_s / 620), 1e-6);
  EXPECT_NEAR(sum_of(got.parts_s), job.seconds, 1e-6);

  // 10 s earlier, the save was not whole yet.
  std::vector<NodeFault> earlier = faults;
  earlier[0].begin_s -= 11;
  EXPECT_NEAR(simulate_job(job, earlier, 0).at(TimePart::lost), 39 + 600, 1e-6);
}

// Saves that meet an outage do not count: storage is away for the second one, and for the load.
TEST(Goodput, CountsAnOutageOfStorageByHand) {
  JobOptions job = job_of(4, 1, 10);
  job.recovery.launch_s = 100;
  job.recovery.load_s = 50;
  job.recovery.stall_s = 20;
  job.recovery.write_s = 60;
  const double crash_s = 100 + 2 * 620 + 50;
  const std::vector<NodeFault> faults{{.begin_s = crash_s, .node = 2, .repair_s = kHourOfJob_s}};
  const double down_s = detection_s(job, FaultKind::crash) + judgement_s(FaultKind::crash);
  job.outages = {{.begin_s = 100 + 2 * 620 + 30, .end_s = crash_s + 1000}};  // in the write of the second save
  const JobOutcome got = simulate_job(job, faults, 0);
  EXPECT_NEAR(got.at(TimePart::lost), 600 + 50, 1e-6);
  EXPECT_NEAR(got.at(TimePart::storage), 1000 - down_s - 100, 1e-6);
  EXPECT_NEAR(sum_of(got.parts_s), job.seconds, 1e-6);
  job.outages = {{.begin_s = 100 + 620 - 30, .end_s = 100 + 620 - 20.5}};  // just before the first save
  EXPECT_NEAR(simulate_job(job, faults, 0).at(TimePart::lost), 50, 1e-6);
  job.outages = {{.begin_s = 100 + 620 - 30, .end_s = 100 + 3 * 620}};  // every save
  EXPECT_NEAR(simulate_job(job, faults, 0).at(TimePart::lost), 2 * 600 + 50, 1e-6);
}

// With outages as short as they are here, saves fail independently: a share q of them, as an M/G/infinity queue is not
// empty at some time of a save's write w, q = 1 - exp(-rate (mean + w)). Of n whole intervals before a failure,
// geometric with p = exp(-cycle / mtbf), those up to the last good save are kept: (1 - q) / (1 - q p) of what would be
// without outages. The wait for a load comes on top, and is taken out of the time here.
TEST(Goodput, AgreesWithTheClosedFormForOutagesOfStorage) {
  JobOptions job = job_of(100, 0, 24 * 200);
  job.interval_s = 1800;
  job.recovery.launch_s = 30;
  job.recovery.stall_s = job.recovery.write_s = 30;
  job.recovery.max_attempts = 1'000'000;
  const double mtbf_s = 2 * kHourOfJob_s;
  const FaultSource source{.hazards = {{.per_node_day = kSecondsPerDay / mtbf_s / 100}}};
  const StorageOutages storage{.per_day = kSecondsPerDay / 400, .mean_s = 100};
  std::vector<double> effective;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    job.outages = draw_outages(storage, job.seconds, seed);
    const JobOutcome got = simulate_job(job, draw_faults(source, 100, job.seconds, seed), seed);
    EXPECT_GT(got.at(TimePart::storage), 0);
    effective.push_back(got.at(TimePart::trained) / (job.seconds - got.at(TimePart::storage)));
  }
  const double down_s = detection_s(job, FaultKind::crash) + judgement_s(FaultKind::crash) + 30;
  const double cycle_s = 1800 + 30, q = -std::expm1(-(100 + 30) / 400.0), p = std::exp(-cycle_s / mtbf_s);
  const double without = 1800 / (mtbf_s * std::exp(down_s / mtbf_s) * std::expm1(cycle_s / mtbf_s));
  const Estimate got = estimate(effective);
  EXPECT_LT(got.error.value(), 0.01);
  EXPECT_NEAR(got.mean, without * (1 - q) / (1 - q * p), 0.005 + got.error.value());
  EXPECT_GT(without * (1 - (1 - q) / (1 - q * p)), 0.03) << "without outages it would be much the same";
}

TEST(Outages, AreDrawnAsOftenAndAsLongAsTheyAreSaid) {
  const std::vector<Outage> drawn = draw_outages({.per_day = 4, .mean_s = 3600}, 1e4 * kSecondsPerDay, 3);
  double away_s = 0, before_s = -1;
  for (const Outage& outage : drawn) {
    EXPECT_GT(outage.begin_s, before_s);
    before_s = outage.end_s;
    away_s += outage.end_s - outage.begin_s;
  }
  EXPECT_NEAR(away_s / (1e4 * kSecondsPerDay), -std::expm1(-4.0 / 24), 0.005);
  EXPECT_EQ(parse_outages("0.1:2h").mean_s, 7200);
  for (const char* text : {"", "0.1", "0.1:", "0.1:x", "-1:2h", "x:2h", "1e9:2h", "nan:2h"}) {
    EXPECT_ANY_THROW(parse_outages(text)) << text;
  }
}

// Half of the nodes train at half the speed until the node is repaired, then the job is queued again.
TEST(Goodput, ARunThatShrinksByHand) {
  JobOptions job = job_of(4, 0, 10);
  job.recovery.requeue_s = 300;
  job.recovery.stall_s = job.recovery.write_s = 40;
  job.smaller = {{.nodes = 3, .slower = 4.0 / 3}, {.nodes = 2, .slower = 2}};
  std::vector<NodeFault> faults{{.begin_s = kHourOfJob_s, .node = 1, .repair_s = 2 * kHourOfJob_s}};
  const double down_s = detection_s(job, FaultKind::crash) + judgement_s(FaultKind::crash);
  JobOutcome got = simulate_job(job, faults, 0);
  EXPECT_EQ(got.shrinks, 1);
  EXPECT_EQ(got.requeues, 1);
  EXPECT_EQ(got.interruptions, 1);
  EXPECT_NEAR(got.at(TimePart::waiting), 0, 1e-9);
  EXPECT_NEAR(got.at(TimePart::shrunk), (2 * kHourOfJob_s - down_s) / 4, 1e-6);
  EXPECT_NEAR(got.at(TimePart::restart), 300, 1e-6);
  EXPECT_NEAR(sum_of(got.parts_s), job.seconds, 1e-6);
  // A second node is lost meanwhile, and is back later: the job grows when all are well.
  faults.push_back({.begin_s = 2 * kHourOfJob_s, .node = 3, .repair_s = 3 * kHourOfJob_s});
  got = simulate_job(job, faults, 0);
  EXPECT_EQ(got.shrinks, 2);
  EXPECT_EQ(got.requeues, 1);
  EXPECT_NEAR(got.at(TimePart::shrunk), (kHourOfJob_s - down_s) / 4 + (3 * kHourOfJob_s - down_s) / 2, 1e-6);
  // A third one leaves too few for any size: it waits until two are well.
  faults.push_back({.begin_s = 2.5 * kHourOfJob_s, .node = 0, .repair_s = kHourOfJob_s});
  got = simulate_job(job, faults, 0);
  EXPECT_NEAR(
      got.at(TimePart::waiting) + got.at(TimePart::detect) + got.at(TimePart::diagnose) + got.at(TimePart::restart),
      0.5 * kHourOfJob_s + 2 * down_s + 300, 1e-6);
  EXPECT_NEAR(sum_of(got.parts_s), job.seconds, 1e-6);
  // Storage that is away then delays it.
  faults.resize(1);
  job.outages = {{.begin_s = 2.9 * kHourOfJob_s, .end_s = 4 * kHourOfJob_s}};
  got = simulate_job(job, faults, 0);
  EXPECT_NEAR(got.at(TimePart::shrunk), (3 * kHourOfJob_s - down_s) / 4, 1e-6);
  job.driver = false;  // which is what shrinks
  EXPECT_EQ(simulate_job(job, faults, 0).shrinks, 0);
}

TEST(Goodput, WithoutSparesItWaitsForTheRepair) {
  const std::vector<NodeFault> faults{{.begin_s = kHourOfJob_s, .node = 0, .repair_s = 5 * kHourOfJob_s}};
  const JobOutcome got = simulate_job(job_of(2, 0, 10), faults, 0);
  EXPECT_EQ(got.requeues, 1);
  EXPECT_NEAR(got.at(TimePart::waiting) + got.at(TimePart::detect) + got.at(TimePart::diagnose), 5 * kHourOfJob_s,
              1e-6);
  EXPECT_LT(simulate_job(job_of(2, 1, 10), faults, 0).at(TimePart::waiting), 1e-9);
}

TEST(Goodput, ASlowNodeCostsUntilASpareTakesItsPlace) {
  std::vector<NodeFault> faults{
      {.begin_s = kHourOfJob_s, .node = 0, .repair_s = 4 * kHourOfJob_s, .kind = FaultKind::slow}};
  JobOptions job = job_of(2, 1, 10);
  job.recovery.slow_factor = 1.25;
  job.recovery.slow_found_s = 1000;
  const JobOutcome with = simulate_job(job, faults, 0);
  EXPECT_EQ(with.interruptions, 1);
  EXPECT_NEAR(with.at(TimePart::slow), 1000 * 0.2, 1e-6);
  EXPECT_NEAR(with.at(TimePart::lost), 0, 1e-6);  // it is left behind a save
  // A fault that follows takes the spare: the slow node works again, and the run does not wait.
  faults.push_back({.begin_s = 2 * kHourOfJob_s, .node = 1, .repair_s = 4 * kHourOfJob_s});
  const JobOutcome after = simulate_job(job, faults, 0);
  const double down_s = detection_s(job, FaultKind::crash) + judgement_s(FaultKind::crash);
  EXPECT_EQ(after.requeues, 0);
  EXPECT_NEAR(after.at(TimePart::waiting), 0, 1e-6);
  EXPECT_NEAR(after.at(TimePart::slow), (1000 + 3 * kHourOfJob_s - down_s) * 0.2, 1e-6);
  faults.pop_back();
  job.recovery.launch_s = kHourOfJob_s;  // a restart costs more than the slow node does
  job.slow_lasts_s = 4 * kHourOfJob_s;
  faults[0].begin_s += kHourOfJob_s;
  EXPECT_NEAR(simulate_job(job, faults, 0).at(TimePart::slow), 4 * kHourOfJob_s * 0.2, 1e-6);
  job.recovery.launch_s = 0;
  faults[0].begin_s = kHourOfJob_s;
  job.spares = 0;
  const JobOutcome without = simulate_job(job, faults, 0);
  EXPECT_EQ(without.interruptions, 0);
  EXPECT_NEAR(without.at(TimePart::slow), 4 * kHourOfJob_s * 0.2, 1e-6);
}

// Two slow nodes of one job: one spare replaces the first. The second stays until a node is there for it.
TEST(Goodput, SlowNodesStayUntilAllOfThemCanBeReplaced) {
  constexpr double kFirst_s = kHourOfJob_s, kSecond_s = kHourOfJob_s + 100, kSlow_s = 6 * kHourOfJob_s;
  std::vector<NodeFault> faults{{.begin_s = kFirst_s, .node = 0, .repair_s = kSlow_s, .kind = FaultKind::slow},
                                {.begin_s = kSecond_s, .node = 1, .repair_s = kSlow_s, .kind = FaultKind::slow}};
  JobOptions job = job_of(4, 1, 10);
  job.recovery.slow_factor = 1.25;
  job.recovery.slow_found_s = 1;
  job.recovery.requeue_s = 600;
  const JobOutcome stays = simulate_job(job, faults, 0);
  EXPECT_EQ(stays.interruptions, 2);  // the second time when the first node is fast again
  EXPECT_EQ(stays.requeues, 0);
  EXPECT_NEAR(stays.at(TimePart::slow), (1 + kFirst_s + kSlow_s - kSecond_s) * 0.2, 1e-6);
  // Two of three spares break and are repaired. The driver sees that when it looks again, at a fault of an idle node.
  constexpr double kLooks_s = 2.5 * kHourOfJob_s;
  job.spares = 3;
  faults.insert(faults.begin(), {{.begin_s = 10, .node = 4, .repair_s = 2 * kHourOfJob_s},
                                 {.begin_s = 20, .node = 5, .repair_s = 2 * kHourOfJob_s}});
  faults.push_back({.begin_s = kLooks_s, .node = 0, .repair_s = kHourOfJob_s});
  const JobOutcome queued = simulate_job(job, faults, 0);
  EXPECT_EQ(queued.requeues, 1);
  EXPECT_NEAR(queued.at(TimePart::restart), 600, 1e-6);
  EXPECT_NEAR(queued.at(TimePart::slow), (1 + kLooks_s - kSecond_s) * 0.2, 1e-6);
}

// The driver is never worse than none, at any number of spares: published rates of faults, few and many spares.
TEST(FailureStudy, WithTheDriverNoNumberOfSparesIsWorse) {
  JobOptions job = job_of(200, 0, 24 * 30);
  job.recovery = {};
  job.interval_s = 1800;
  const FaultSource source{
      .hazards = {{.per_node_day = 0.003, .repair_s = 6 * kSecondsPerDay},
                  {.kind = FaultKind::slow, .per_node_day = 0.001, .repair_s = 6 * kSecondsPerDay}}};
  const FailureStudy with = study_failures(job, source, {}, 5);
  job.driver = false;
  const FailureStudy without = study_failures(job, source, {}, 5);
  ASSERT_EQ(with.spares.size(), without.spares.size());
  for (std::size_t i = 0; i < with.spares.size(); ++i) {
    EXPECT_GE(with.spares[i].effective.mean, without.spares[i].effective.mean) << with.spares[i].spares;
  }
}

TEST(Goodput, AFaultThatIsNotLocatedEndsTheDriverAfterItsIdleAttempts) {
  JobOptions job = job_of(4, 1, 10);
  job.recovery.located = 0;
  job.recovery.launch_s = 100;
  job.recovery.operator_s = 2000;
  job.recovery.requeue_s = 700;
  const std::vector<NodeFault> faults{{.begin_s = kHourOfJob_s, .node = 1, .repair_s = kHourOfJob_s}};
  const JobOutcome got = simulate_job(job, faults, 0);
  const int idle = watch::RetryPolicy{}.max_idle;
  double back_off_s = 0;
  for (int i = 0; i < idle; ++i) back_off_s += watch::wait_before_attempt_s(i, false);
  EXPECT_EQ(got.given_up, 1);
  EXPECT_EQ(got.requeues, 1);
  EXPECT_NEAR(got.at(TimePart::restart), 100 + idle * 100 + back_off_s + 700 + 100, 1e-6);
  EXPECT_NEAR(got.at(TimePart::diagnose), (1 + idle) * judgement_s(FaultKind::crash) + 2000, 1e-6);
}

TEST(Goodput, WithoutADriverEveryFaultWaitsForAnOperatorAndTheQueue) {
  JobOptions job = job_of(4, 1, 10);
  job.driver = false;
  job.recovery.operator_s = 2000;
  job.recovery.requeue_s = 700;
  const std::vector<NodeFault> faults{{.begin_s = kHourOfJob_s, .node = 1, .repair_s = 60, .kind = FaultKind::hang}};
  const JobOutcome got = simulate_job(job, faults, 0);
  EXPECT_NEAR(got.at(TimePart::detect), std::max(job.least_timeout_s, 3 * job.iteration_s + 5), 1e-6);
  EXPECT_NEAR(got.at(TimePart::diagnose), 2000, 1e-6);
  EXPECT_NEAR(got.at(TimePart::restart), 700, 1e-6);
}

// ms-performance(7), RECOVERY: six nodes, steps of 0.2 s.
TEST(Goodput, NoticesAsSoonAsTheDriverWasMeasuredTo) {
  JobOptions job = job_of(4, 2, 1);
  job.iteration_s = 0.2;
  EXPECT_NEAR(detection_s(job, FaultKind::crash), 0.8, 0.1);
  EXPECT_NEAR(detection_s(job, FaultKind::lost), 1.6, 0.15);
  EXPECT_NEAR(detection_s(job, FaultKind::hang), 5.65, 0.15);
}

TEST(FailureStudy, IsDeterministicAndItsChoicesAreOrdered) {
  JobOptions job = job_of(200, 4, 24 * 30);
  job.recovery = {};
  const FaultSource source{.hazards = {{.per_node_day = 0.02, .repair_s = kSecondsPerDay / 2}}};
  const FailureStudy study = study_failures(job, source, {}, 5), again = study_failures(job, source, {}, 5);
  EXPECT_EQ(study.effective.mean, again.effective.mean);
  EXPECT_NEAR(sum_of(study.shares), 1, 1e-9);
  for (std::size_t i = 1; i < study.spares.size(); ++i) {
    EXPECT_GE(study.spares[i].effective.mean, study.spares[i - 1].effective.mean - 0.01);
  }
  // The formula knows of nothing but saves and lost steps; near its optimum the loss is flat.
  ASSERT_TRUE(study.daly.has_value());
  const double best = study.intervals[study.best_interval].effective.mean;
  EXPECT_NEAR(study.intervals[*study.daly].effective.mean, best, 0.005);
}

TEST(FailureStudy, TakesTheIntervalThatTheConfigurationSays) {
  const FaultSource source{.hazards = {{.kind = FaultKind::crash, .per_node_day = 0.5}}};
  JobOptions job{.nodes = 24};  // a fault in two hours
  job.iteration_s = 2, job.recovery.stall_s = 5;
  CheckpointConfig config;
  EXPECT_EQ(save_interval_s(config, source, job), config.every_s);
  config.mtbf_s = 3600;
  EXPECT_EQ(save_interval_s(config, source, job), ckpt::daly_interval_s(5, 3600));
  config.every_steps = 50;
  EXPECT_EQ(save_interval_s(config, source, job), 100);
  config.every_steps = 0;
  config.mtbf_s = 0;
  config.every_s = kNumberWord;
  EXPECT_EQ(save_interval_s(config, source, job), ckpt::daly_interval_s(5, 7200));
  config.every_s = 0;
  EXPECT_ANY_THROW(save_interval_s(config, source, job));
}

}  // namespace
}  // namespace ms::train
