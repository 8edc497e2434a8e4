#include "train/simulate/failure_study.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "ckpt/interval.h"
#include "train/checkpoint/save_interval.h"

namespace ms::train {
namespace {

constexpr std::array kIntervalMinutes{1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 45, 60, 90, 120, 240};
constexpr std::array kSpareNumbers{0, 1, 2, 4, 8, 16, 32, 48, 64, 96, 128};

class SeededFaults {
 public:
  SeededFaults(const FaultSource& source, const StorageOutages& storage, int nodes, double seconds, int seeds) {
    for (int seed = 0; seed < seeds; ++seed) {
      all_.push_back(draw_faults(source, nodes, seconds, static_cast<std::uint64_t>(seed)));
      outages_.push_back(draw_outages(storage, seconds, static_cast<std::uint64_t>(seed)));
    }
  }

  // One run for each seed.
  std::vector<JobOutcome> run(JobOptions job) const {
    std::vector<JobOutcome> outcomes;
    for (std::size_t seed = 0; seed < all_.size(); ++seed) {
      std::vector<NodeFault> faults;
      std::ranges::copy_if(all_[seed], std::back_inserter(faults),
                           [&](const NodeFault& fault) { return fault.node < job.nodes + job.spares; });
      job.outages = outages_[seed];
      outcomes.push_back(simulate_job(job, faults, seed));
    }
    return outcomes;
  }

 private:
  std::vector<std::vector<NodeFault>> all_;   // [seed]
  std::vector<std::vector<Outage>> outages_;  // the same
};

template <class F>
Estimate estimate_of(const std::vector<JobOutcome>& outcomes, F&& value) {
  std::vector<double> values;
  for (const JobOutcome& outcome : outcomes) values.push_back(value(outcome));
  return estimate(values);
}

Estimate share_of(const std::vector<JobOutcome>& outcomes, TimePart part, double seconds) {
  return estimate_of(outcomes, [&](const JobOutcome& outcome) { return outcome.at(part) / seconds; });
}

IntervalChoice with_interval(JobOptions job, double interval_s, const SeededFaults& faults) {
  job.interval_s = interval_s;
  const std::vector<JobOutcome> outcomes = faults.run(job);
  return {.interval_s = interval_s,
          .effective = share_of(outcomes, TimePart::trained, job.seconds),
          .lost = share_of(outcomes, TimePart::lost, job.seconds).mean,
          .save = share_of(outcomes, TimePart::save, job.seconds).mean};
}

SpareChoice with_spares(JobOptions job, int spares, const SeededFaults& faults) {
  job.spares = spares;
  const std::vector<JobOutcome> outcomes = faults.run(job);
  const Estimate effective = share_of(outcomes, TimePart::trained, job.seconds);
  return {.spares = spares,
          .effective = effective,
          .waiting = share_of(outcomes, TimePart::waiting, job.seconds).mean,
          .of_held = effective.mean * job.nodes / (job.nodes + spares),
          .requeues = estimate_of(outcomes, [](const JobOutcome& o) { return double(o.requeues); }).mean};
}

template <class Row, class F>
std::size_t best_of(const std::vector<Row>& rows, F&& value) {
  return static_cast<std::size_t>(std::ranges::max_element(rows, {}, value) - rows.begin());
}

}  // namespace

double save_interval_s(const CheckpointConfig& config, const FaultSource& source, const JobOptions& job) {
  if (config.every_steps > 0) return static_cast<double>(config.every_steps) * job.iteration_s;
  const double faults_per_s = source.per_node_day() * job.nodes / kSecondsPerDay;
  const double interval_s =
      save_interval_s(config, job.recovery.stall_s > 0 ? std::optional(job.recovery.stall_s) : std::nullopt,
                      faults_per_s > 0 ? 1 / faults_per_s : usual_mtbf_s(static_cast<std::size_t>(job.nodes)));
  if (interval_s > 0) return interval_s;
  throw user_error("config.invalid", "checkpoint.every is 0: after a failure nothing would be left",
                   "--set checkpoint.every=30m");
}

FailureStudy study_failures(const JobOptions& wanted, const FaultSource& source, const StorageOutages& storage,
                            int seeds) {
  JobOptions job = wanted;
  job.slow_lasts_s = source.mean_repair_s(FaultKind::slow);
  std::vector<int> numbers{job.spares};
  for (const int spares : kSpareNumbers) {
    if (spares < job.nodes && spares != job.spares) numbers.push_back(spares);
  }
  std::ranges::sort(numbers);
  const SeededFaults faults(source, storage, job.nodes + numbers.back(), job.seconds, seeds);

  const std::vector<JobOutcome> outcomes = faults.run(job);
  FailureStudy study{
      .job = job,
      .seeds = seeds,
      .storage = storage,
      .per_node_day = source.per_node_day(),
      .mean_repair_s = source.mean_repair_s(),
      .effective = share_of(outcomes, TimePart::trained, job.seconds),
      .interruptions = estimate_of(outcomes, [](const JobOutcome& o) { return double(o.interruptions); })};
  for (std::size_t part = 0; part < kTimeParts; ++part) {
    study.shares[part] = share_of(outcomes, static_cast<TimePart>(part), job.seconds).mean;
  }
  study.requeues = estimate_of(outcomes, [](const JobOutcome& o) { return double(o.requeues); }).mean;
  study.given_up = estimate_of(outcomes, [](const JobOutcome& o) { return double(o.given_up); }).mean;
  study.shrinks = estimate_of(outcomes, [](const JobOutcome& o) { return double(o.shrinks); }).mean;

  std::vector<double> intervals_s{job.interval_s};
  for (const int minutes : kIntervalMinutes) {
    const double interval_s = 60.0 * minutes;
    if (interval_s != job.interval_s && interval_s >= std::max(job.iteration_s, job.recovery.write_s)) {
      intervals_s.push_back(interval_s);
    }
  }
  double daly_s = 0;
  if (study.interruptions.mean > 0 && job.recovery.stall_s > 0) {
    const double at_risk = study.shares[static_cast<std::size_t>(TimePart::trained)] +
                           study.shares[static_cast<std::size_t>(TimePart::lost)] +
                           study.shares[static_cast<std::size_t>(TimePart::save)];
    daly_s = ckpt::daly_interval_s(job.recovery.stall_s, job.seconds * at_risk / study.interruptions.mean);
    if (daly_s != job.interval_s) intervals_s.push_back(daly_s);
  }
  std::ranges::sort(intervals_s);
  for (const double interval_s : intervals_s) {
    if (interval_s == daly_s) study.daly = study.intervals.size();
    study.intervals.push_back(with_interval(job, interval_s, faults));
  }
  study.best_interval = best_of(study.intervals, [](const IntervalChoice& row) { return row.effective.mean; });
  for (const int spares : numbers) study.spares.push_back(with_spares(job, spares, faults));
  study.best_spares = best_of(study.spares, &SpareChoice::of_held);
  return study;
}

}  // namespace ms::train
