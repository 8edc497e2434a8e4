#include "loan/runs.h"

#include <algorithm>

#include "base/error.h"

namespace ms::loan {

Group worker_choices(const TraceJob& job, const SpeedCurve& curve, int worker_gpus, double left_s, int workers_now,
                     double overhead_s) {
  std::vector<int> sizes;
  for (int gpus = job.gpus + worker_gpus; gpus <= job.max_gpus; gpus += worker_gpus) sizes.push_back(gpus);
  return extra_choices(curve, job.gpus, sizes, job.gpus + workers_now * worker_gpus, left_s, overhead_s);
}

Runs::Runs(const JobTrace& trace, const Policy& policy)
    : trace_(trace),
      config_(policy.jobs),
      horizon_s_(policy.schedule.horizon_s),
      nodes_(static_cast<int>(policy.cluster.train_nodes), static_cast<int>(policy.cluster.inference_nodes),
             static_cast<int>(policy.cluster.gpus_per_node)),
      jobs_(trace.jobs.size()) {
  for (std::size_t i = 0; i < jobs_.size(); ++i) jobs_[i].left_s = trace.jobs[i].work_s;
}

bool Runs::ends_now(const End& end) const {
  return at(end.job).phase == Phase::running && at(end.job).version == end.version;
}

double Runs::estimate_s(int job) const {
  const double done_s = traced(job).work_s - at(job).left_s;
  return std::max(0.0, traced(job).estimate_s - done_s);
}

LoanedJob Runs::as_loaned(int job) const {
  return {.nodes = static_cast<int>(at(job).needed.size()), .started_s = at(job).started_s};
}

void Runs::count_work(Job& job, double now_s) {
  if (now_s <= job.progress_from_s) return;
  job.left_s = std::max(0.0, job.left_s - (now_s - job.progress_from_s) * job.rate);
  job.progress_from_s = now_s;
}

void Runs::expect_end(int job) {
  Job& it = at(job);
  expected_ends_.erase({it.expected_end_s, job});
  it.expected_end_s = it.progress_from_s + estimate_s(job) / it.rate;
  expected_ends_.insert({it.expected_end_s, job});
  new_ends_.push_back({.time_s = it.progress_from_s + it.left_s / it.rate, .job = job, .version = ++it.version});
}

bool Runs::try_start(int job, double now_s, bool over_extra) {
  const int gpus = traced(job).gpus;
  std::optional<Placement> placement = nodes_.fit(gpus, false);
  if (!placement && over_extra) placement = nodes_.fit(gpus, true);
  if (!placement) return false;
  for (const Part& part : *placement) {
    for (const int other : nodes_.extra_jobs(part.node)) {
      drop_extra_on(other, part.node, nodes_.extra_over(part), now_s);
    }
  }
  Job& it = at(job);
  nodes_.take(job, *placement, false);
  it.needed = std::move(*placement);
  it.phase = Phase::running;
  it.rate = 1;
  it.started_s = now_s;
  it.progress_from_s = now_s + (it.preemptions > 0 ? config_.preempt_overhead_s : 0);
  if (traced(job).elastic()) elastic_.insert(job);
  expect_end(job);
  return true;
}

void Runs::stop(int job, Phase phase) {
  Job& it = at(job);
  ++it.version;
  it.phase = phase;
  expected_ends_.erase({it.expected_end_s, job});
  elastic_.erase(job);
  release_extra(job, it.extra.size());
}

void Runs::finish(int job) {
  stop(job, Phase::done);
  nodes_.release(job, at(job).needed, false);
}

void Runs::begin_saving(int job, double now_s) {
  MS_ASSERT(at(job).phase == Phase::running, "job {} does not run", job);
  count_work(at(job), now_s);
  stop(job, Phase::saving);
}

void Runs::preempt(int job) {
  Job& it = at(job);
  MS_ASSERT(it.phase == Phase::saving, "job {} does not save", job);
  nodes_.release(job, it.needed, false);
  it.needed.clear();
  it.phase = Phase::waiting;
  ++it.preemptions;
}

void Runs::begin_return(int node, double now_s) {
  for (const int job : nodes_.extra_jobs(node)) drop_extra_on(job, node, nodes_.gpus_per_node(), now_s);
  nodes_.begin_return(node);
}

std::vector<int> Runs::elastic(double now_s) {
  for (const int job : elastic_) count_work(at(job), now_s);
  return {elastic_.begin(), elastic_.end()};
}

Group Runs::choices(int job) const {
  return worker_choices(traced(job), trace_.curve_of(traced(job)), worker_gpus(job),
                        std::min(estimate_s(job), horizon_s_), static_cast<int>(at(job).extra.size()),
                        config_.scale_overhead_s);
}

void Runs::release_extra(int job, std::size_t workers) {
  for (; workers > 0; --workers) {
    nodes_.release(job, at(job).extra.back(), true);
    at(job).extra.pop_back();
  }
}

// The job's workers are others from now on; its work until now was counted.
void Runs::scaled(int job, double now_s) {
  Job& it = at(job);
  const TraceJob& traced_job = traced(job);
  const int gpus = traced_job.gpus + static_cast<int>(it.extra.size()) * worker_gpus(job);
  it.rate = trace_.curve_of(traced_job).speedup(traced_job.gpus, gpus);
  it.progress_from_s = std::max(it.progress_from_s, now_s + config_.scale_overhead_s);
  expect_end(job);
}

// Until so many GPUs are free there.
void Runs::drop_extra_on(int job, int node, int gpus, double now_s) {
  if (gpus <= 0) return;
  Job& it = at(job);
  count_work(it, now_s);
  for (std::size_t i = it.extra.size(); i-- > 0 && gpus > 0;) {
    if (it.extra[i].front().node != node) continue;
    gpus -= it.extra[i].front().gpus;
    nodes_.release(job, it.extra[i], true);
    it.extra.erase(it.extra.begin() + static_cast<std::ptrdiff_t>(i));
  }
  scaled(job, now_s);
}

void Runs::shrink(int job, std::size_t workers, double now_s) {
  const std::size_t now = at(job).extra.size();
  if (workers >= now) return;
  count_work(at(job), now_s);
  release_extra(job, now - workers);
  scaled(job, now_s);
}

void Runs::grow(int job, std::size_t workers, double now_s) {
  std::vector<Placement>& extra = at(job).extra;
  const std::size_t before = extra.size();
  while (extra.size() < workers) {
    std::optional<Placement> placement = nodes_.fit_extra(worker_gpus(job));
    if (!placement) break;
    nodes_.take(job, *placement, true);
    extra.push_back(std::move(*placement));
  }
  if (extra.size() == before) return;
  count_work(at(job), now_s);
  scaled(job, now_s);
}

}  // namespace ms::loan
