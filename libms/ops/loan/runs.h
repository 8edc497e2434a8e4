// The jobs of a replay while they run: which GPUs they have, how fast they are and when they end. Replay decides, and
// keeps the time; every call here is at a time that is not before that of the call before it.
#pragma once

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "loan/extras.h"
#include "loan/nodes.h"
#include "loan/policy.h"
#include "loan/trace.h"

namespace ms::loan {

// The choices of an elastic job for the knapsack: one extra worker, two, ...; see extra_choices().
Group worker_choices(const TraceJob& job, const SpeedCurve& curve, int worker_gpus, double left_s, int workers_now,
                     double overhead_s);

class Runs {
 public:
  // When a job ends, if nothing changes until then: another version of the job is expected to end at another time.
  struct End {
    double time_s = 0;
    int job = 0;
    int version = 0;
  };

  Runs(const JobTrace& trace, const Policy& policy);

  Nodes& nodes() { return nodes_; }
  const Nodes& nodes() const { return nodes_; }

  // The ends that became known since the last call.
  std::vector<End> take_ends() { return std::exchange(new_ends_, {}); }
  bool ends_now(const End& end) const;

  double estimate_s(int job) const;  // of the work left, on the needed GPUs
  bool saving(int job) const { return at(job).phase == Phase::saving; }

  LoanedJob as_loaned(int job) const;
  // Estimated ends of what runs, the first first.
  const std::set<std::pair<double, int>>& expected_ends() const { return expected_ends_; }

  // Starts the job if it fits; `over_extra`: extra workers of others may be dropped for it.
  bool try_start(int job, double now_s, bool over_extra);
  void finish(int job);
  // The job stops, and saves on its GPUs until preempt() takes them.
  void begin_saving(int job, double now_s);
  void preempt(int job);

  // Drops extra workers that have GPUs of the node, and takes it off loan.
  void begin_return(int node, double now_s);

  // The elastic jobs that run, and what each may choose.
  std::vector<int> elastic(double now_s);
  Group choices(int job) const;
  // Shrinks (or grows, as far as GPUs are to be found) the job to so many extra workers.
  void shrink(int job, std::size_t workers, double now_s);
  void grow(int job, std::size_t workers, double now_s);

 private:
  enum class Phase : std::uint8_t { waiting, running, saving, done };
  struct Job {
    Phase phase = Phase::waiting;
    double left_s = 0;           // of its work, on its needed GPUs
    double rate = 1;             // of that work, in a second
    double progress_from_s = 0;  // later than now while it starts or scales
    double started_s = 0;
    double expected_end_s = 0;
    int version = 0;
    int preemptions = 0;
    Placement needed;
    std::vector<Placement> extra;  // one a worker
  };

  Job& at(int job) { return jobs_[static_cast<std::size_t>(job)]; }
  const Job& at(int job) const { return jobs_[static_cast<std::size_t>(job)]; }
  const TraceJob& traced(int job) const { return trace_.jobs[static_cast<std::size_t>(job)]; }
  int worker_gpus(int job) const { return std::min(traced(job).gpus, nodes_.gpus_per_node()); }
  static void count_work(Job& job, double now_s);
  void expect_end(int job);
  void stop(int job, Phase phase);
  void drop_extra_on(int job, int node, int gpus, double now_s);
  void release_extra(int job, std::size_t workers);
  void scaled(int job, double now_s);

  const JobTrace& trace_;
  const JobsConfig& config_;
  double horizon_s_;
  Nodes nodes_;
  std::vector<Job> jobs_;
  std::set<int> elastic_;  // of those that run
  std::set<std::pair<double, int>> expected_ends_;
  std::vector<End> new_ends_;
};

}  // namespace ms::loan
