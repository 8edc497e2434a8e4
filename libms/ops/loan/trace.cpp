#include "loan/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "unpack/csv.h"

namespace ms::loan {
namespace {

constexpr double kDay_s = 86'400;
constexpr double kMaxGpus = 1e6;
constexpr double kMaxCopyDelay_s = 3600;
constexpr double kMaxTraceJobs = 5e6;
constexpr std::int64_t kMaxExtraWorkers = 10'000;  // of one job: the knapsack's choices
constexpr std::uint64_t kCopies = rng_key("loan copies");
constexpr std::uint64_t kCopyDelays = rng_key("loan copy delays");
constexpr std::uint64_t kElasticTies = rng_key("loan elastic jobs");
constexpr std::uint64_t kCurves = rng_key("loan curves");
constexpr std::uint64_t kEstimates = rng_key("loan estimates");

// The days in a row with the most submissions; `jobs` are sorted.
void keep_busiest_days(std::vector<TraceJob>& jobs, std::int64_t days) {
  const double window_s = static_cast<double>(days) * kDay_s;
  const double first_s = jobs.front().submit_s;
  if (days == 0 || jobs.back().submit_s - first_s < window_s) return;
  std::vector<std::int64_t> submitted(static_cast<std::size_t>((jobs.back().submit_s - first_s) / kDay_s) + 1, 0);
  for (const TraceJob& job : jobs) ++submitted[static_cast<std::size_t>((job.submit_s - first_s) / kDay_s)];
  std::size_t best = 0;
  std::int64_t most = -1;
  for (std::size_t day = 0; day + static_cast<std::size_t>(days) <= submitted.size(); ++day) {
    const auto begin = submitted.begin() + static_cast<std::ptrdiff_t>(day);
    const std::int64_t sum = std::accumulate(begin, begin + days, std::int64_t{0});
    if (sum > most) {
      most = sum;
      best = day;
    }
  }
  const double from_s = first_s + static_cast<double>(best) * kDay_s;
  std::erase_if(jobs, [&](const TraceJob& job) { return job.submit_s < from_s || job.submit_s >= from_s + window_s; });
}

std::vector<TraceJob> copied(const std::vector<TraceJob>& jobs, const JobsConfig& config, std::uint64_t seed) {
  std::vector<TraceJob> all;
  std::uint64_t drawn = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const double whole = std::floor(config.copies);
    const bool one_more = uniform(seed, kCopies, i) < config.copies - whole;
    const int count = static_cast<int>(whole) + (one_more ? 1 : 0);
    for (int copy = 0; copy < count; ++copy) {
      all.push_back(jobs[i]);
      if (copy > 0) all.back().submit_s += kMaxCopyDelay_s * uniform(seed, kCopyDelays, drawn++);
    }
  }
  return all;
}

void by_submission(std::vector<TraceJob>& jobs) {
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submit_s < b.submit_s; });
}

// Those with the most GPUs; which of equal ones is drawn.
void make_elastic(std::vector<TraceJob>& jobs, const JobsConfig& config, std::uint64_t seed) {
  std::vector<std::size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (jobs[a].gpus != jobs[b].gpus) return jobs[a].gpus > jobs[b].gpus;
    return random_u64(seed, kElasticTies, a) < random_u64(seed, kElasticTies, b);
  });
  const auto count = static_cast<std::size_t>(static_cast<double>(jobs.size()) * config.elastic_percent / 100);
  for (std::size_t i = 0; i < count; ++i) {
    jobs[order[i]].max_gpus = jobs[order[i]].gpus * static_cast<int>(config.max_times);
  }
}

void check_workers(const std::string& place, const TraceJob& job, const Policy& policy) {
  const std::int64_t worker_gpus = std::min<std::int64_t>(job.gpus, policy.cluster.gpus_per_node);
  if ((job.max_gpus - job.gpus) / worker_gpus <= kMaxExtraWorkers) return;
  throw user_error("loan.jobs", fmt::format("{}: a job of {} GPUs that takes up to {} has more than {} extra workers",
                                            place, job.gpus, job.max_gpus, kMaxExtraWorkers));
}

std::vector<std::pair<double, double>> instance_steps(const unpack::CsvTable& table) {
  const std::size_t created = table.column({"creation_time"});
  const std::size_t deleted = table.column({"deletion_time"});
  const std::size_t gpus = table.column({"gpu_request"});
  std::vector<std::pair<double, double>> changes;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const double count = table.number(row, gpus, 0, kMaxGpus);  // of shared GPUs a part
    if (count == 0) continue;
    const double from_s = table.cell(row, created).empty() ? 0 : table.number(row, created, 0, 1e10);
    changes.emplace_back(from_s, count);
    if (!table.cell(row, deleted).empty()) changes.emplace_back(table.number(row, deleted, from_s, 1e10), -count);
  }
  return changes;
}

// GPUs in use from each time on, from changes in any order.
std::vector<std::pair<double, double>> summed(const std::vector<std::pair<double, double>>& changes) {
  std::map<double, double> by_time;
  for (const auto& [time_s, count] : changes) by_time[time_s] += count;
  std::vector<std::pair<double, double>> steps;
  double in_use = 0;
  for (const auto& [time_s, change] : by_time) steps.emplace_back(time_s, in_use += change);
  return steps;
}

std::vector<std::pair<double, double>> plain_steps(const unpack::CsvTable& table, double gpus_per_node) {
  const std::size_t time = table.column({"time_s"});
  const std::optional<std::size_t> gpus = table.find({"gpus"});
  const std::size_t value = gpus ? *gpus : table.column({"nodes", "gpus"});
  std::vector<std::pair<double, double>> steps;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const double time_s = table.time_s(row, time);
    if (!steps.empty() && time_s <= steps.back().first) table.refuse(row, time, "is not after the row before it");
    steps.emplace_back(time_s, table.number(row, value, 0, 1e9) * (gpus ? 1 : gpus_per_node));
  }
  return steps;
}

}  // namespace

SpeedCurve::SpeedCurve(std::vector<std::pair<double, double>> points) : points_(std::move(points)) {
  for (std::size_t i = 1; i < points_.size(); ++i) {
    points_[i].second = std::max(points_[i].second, points_[i - 1].second);
  }
}

SpeedCurve SpeedCurve::read(const std::string& path) {
  const unpack::CsvTable table(path);
  const std::size_t replicas = table.column({"num_replicas"});
  const std::size_t batch = table.column({"local_bsz"});
  const std::size_t step = table.column({"step_time"});
  std::map<double, double> best;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const double count = table.number(row, replicas, 1, kMaxGpus);
    const double rate = count * table.number(row, batch, 1, 1e9) / table.number(row, step, 1e-9, 1e9);
    best[count] = std::max(best[count], rate);
  }
  if (best.empty()) throw user_error("loan.csv", fmt::format("{} holds no step", path));
  return SpeedCurve({best.begin(), best.end()});
}

double SpeedCurve::at(double gpus) const {
  if (points_.empty()) return gpus;
  const auto above = std::lower_bound(points_.begin(), points_.end(), gpus,
                                      [](const auto& point, double value) { return point.first < value; });
  if (above == points_.end()) return points_.back().second;
  if (above == points_.begin()) return above->second * gpus / above->first;
  const auto below = above - 1;
  const double part = (gpus - below->first) / (above->first - below->first);
  return below->second + part * (above->second - below->second);
}

const SpeedCurve& JobTrace::curve_of(const TraceJob& job) const {
  static const SpeedCurve kProportional;
  return job.curve < 0 ? kProportional : curves[static_cast<std::size_t>(job.curve)];
}

double JobTrace::gpu_seconds() const {
  return std::accumulate(jobs.begin(), jobs.end(), 0.0,
                         [](double sum, const TraceJob& job) { return sum + job.work_s * job.gpus; });
}

JobTrace read_jobs(const std::string& path, const Policy& policy) {
  const JobsConfig& config = policy.jobs;
  const auto seed = static_cast<std::uint64_t>(config.seed);
  const unpack::CsvTable table(path);
  const std::size_t submit = table.column({"submit", "submit_time", "timestamp"});
  const std::size_t duration = table.column({"duration"});
  const std::size_t gpus = table.column({"gpus", "num_gpus", "gpu_num"});
  const auto max_gpus = table.find({"max_gpus"});
  const auto limit = table.find({"time_limit"});
  JobTrace trace;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    TraceJob job{.submit_s = table.time_s(row, submit), .work_s = table.number(row, duration, 0, kMaxDuration_s)};
    if (job.submit_s < 0) table.refuse(row, submit, "is negative");
    const int count = static_cast<int>(std::ceil(table.number(row, gpus, 0, kMaxGpus)));  // a part blocks a GPU
    if (count == 0) {
      ++trace.without_gpus;
      continue;
    }
    job.gpus = job.max_gpus = count * static_cast<int>(config.gpus_times);
    if (job.gpus > policy.train_gpus()) {
      throw user_error("loan.jobs",
                       fmt::format("{}: the job needs {} GPUs, training has {:.0f} of its own", table.place(row),
                                   job.gpus, policy.train_gpus()),
                       "see jobs.gpus_times and cluster.train_nodes of the policy");
    }
    if (max_gpus) {
      const int most = static_cast<int>(table.number(row, *max_gpus, count, kMaxGpus));
      job.max_gpus = most * static_cast<int>(config.gpus_times);
      check_workers(table.place(row), job, policy);
    }
    job.estimate_s = limit ? table.number(row, *limit, 0, kMaxDuration_s) : job.work_s;
    trace.jobs.push_back(job);
  }
  if (trace.jobs.empty()) throw user_error("loan.jobs", fmt::format("{} holds no job with GPUs", path));
  by_submission(trace.jobs);
  keep_busiest_days(trace.jobs, config.days);
  trace.origin_s = trace.jobs.front().submit_s;
  if (static_cast<double>(trace.jobs.size()) * config.copies > kMaxTraceJobs) {
    throw user_error("loan.jobs",
                     fmt::format("{} times {} jobs are too many to replay", config.copies, trace.jobs.size()));
  }
  trace.jobs = copied(trace.jobs, config, seed);
  if (trace.jobs.empty()) throw user_error("loan.jobs", fmt::format("jobs.copies {} leaves no job", config.copies));
  by_submission(trace.jobs);
  if (!max_gpus) {
    make_elastic(trace.jobs, config, seed);
    for (const TraceJob& job : trace.jobs) check_workers(path, job, policy);
  }
  for (const std::string& file : config.curves) trace.curves.push_back(SpeedCurve::read(file));
  for (std::size_t i = 0; i < trace.jobs.size(); ++i) {
    TraceJob& job = trace.jobs[i];
    job.submit_s -= trace.origin_s;
    if (!trace.curves.empty()) job.curve = static_cast<int>(uniform_below(seed, kCurves, i, trace.curves.size()));
    if (!limit) job.estimate_s *= 1 + config.estimate_error_percent / 100 * (2 * uniform(seed, kEstimates, i) - 1);
  }
  trace.span_s = trace.jobs.back().submit_s;
  if (trace.span_s > kMaxDuration_s) {
    throw user_error("loan.jobs", fmt::format("{}: its jobs are {} apart", path, format_duration(trace.span_s)));
  }
  return trace;
}

int Demand::at(double time_s) const {
  const auto after = std::upper_bound(steps.begin(), steps.end(), time_s,
                                      [](double value, const auto& step) { return value < step.first; });
  return after == steps.begin() ? 0 : (after - 1)->second;
}

Demand read_demand(const std::string& path, const Policy& policy, double span_s) {
  const unpack::CsvTable table(path);
  const auto gpus_per_node = static_cast<double>(policy.cluster.gpus_per_node);
  std::vector<std::pair<double, double>> gpus =
      table.find({"creation_time"}) ? summed(instance_steps(table)) : plain_steps(table, gpus_per_node);
  if (gpus.empty()) throw user_error("loan.demand", fmt::format("{} holds no demand", path));
  const double origin_s = gpus.front().first;
  if (policy.demand.scaled()) {
    // The range is that of the time in which jobs come; what is beyond it later is cut.
    const auto later =
        std::find_if(gpus.begin(), gpus.end(), [&](const auto& step) { return step.first - origin_s > span_s; });
    const auto [low, high] =
        std::minmax_element(gpus.begin(), later, [](const auto& a, const auto& b) { return a.second < b.second; });
    const double least = low->second;
    const double range = high->second - low->second;
    if (range == 0) {
      throw user_error("loan.demand",
                       fmt::format("{}: demand is {:g} GPUs all the time in which jobs come, {}, and low_percent and "
                                   "high_percent have no range to stretch",
                                   path, least, format_duration(span_s)),
                       "without these keys it is taken as it is");
    }
    const double from = policy.inference_gpus() * policy.demand.low_percent / 100;
    const double to = policy.inference_gpus() * policy.demand.high_percent / 100;
    for (auto& [time_s, count] : gpus) { count = from + std::clamp((count - least) / range, 0.0, 1.0) * (to - from); }
  }
  Demand demand;
  for (const auto& [time_s, count] : gpus) {
    const int nodes = static_cast<int>(std::ceil(count / gpus_per_node - 1e-9));
    if (nodes > policy.cluster.inference_nodes) {
      throw user_error("loan.demand",
                       fmt::format("{}: inference needs {} nodes at {:.0f} s, and has {}", path, nodes, time_s,
                                   policy.cluster.inference_nodes),
                       "set cluster.inference_nodes, or demand.low_percent and high_percent, in the policy");
    }
    if (demand.steps.empty() || demand.steps.back().second != nodes)
      demand.steps.emplace_back(time_s - origin_s, nodes);
  }
  return demand;
}

}  // namespace ms::loan
