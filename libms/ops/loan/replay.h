// Replays jobs and demand under one scheduler, event by event: deterministic but for the seconds of decisions, which
// are measured. One kind of GPU: a loaned GPU is as fast as training's own. A job that loses a node saves within the
// notice, makes no progress meanwhile, waits again, and loses the policy's overhead when it starts anew.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "loan/policy.h"
#include "loan/schedulers.h"
#include "loan/trace.h"

namespace ms::loan {

// How long decisions take.
struct Decisions {
  int count = 0;
  double sum_s = 0;
  double max_s = 0;

  double mean_s() const { return count == 0 ? 0 : sum_s / count; }
};

// Counts one decision, as long as the object lives.
class Measured {
 public:
  explicit Measured(Decisions& decisions) : decisions_(decisions), begin_s_(monotonic_s()) {}
  Measured(const Measured&) = delete;
  Measured& operator=(const Measured&) = delete;
  ~Measured() {
    const double seconds = monotonic_s() - begin_s_;
    ++decisions_.count;
    decisions_.sum_s += seconds;
    decisions_.max_s = std::max(decisions_.max_s, seconds);
  }

 private:
  Decisions& decisions_;
  double begin_s_;
};

struct JobOutcome {
  double queue_s = 0;  // all of its waits
  double end_s = 0;
  int preemptions = 0;
};

// The cluster at one time.
struct Sample {
  double time_s = 0;
  int own_busy_gpus = 0;
  int loaned_busy_gpus = 0;
  int extra_gpus = 0;  // of both
  int loaned_nodes = 0;
  int demand_nodes = 0;
  int waiting_jobs = 0;
};

struct Outcome {
  std::string_view scheduler;
  std::vector<JobOutcome> jobs;  // as in the trace
  int preemptions = 0;
  int reclaimed_nodes = 0;
  double usage = 0;               // busy GPU-seconds of both clusters until the last submission, of all there are
  double training_usage = 0;      // GPU-seconds of jobs in that time, of training's own GPUs: may be above 1
  double request_wait_max_s = 0;  // of inference for a node
  Decisions schedule;             // who starts
  Decisions victims;
  Decisions extra;              // the knapsack
  std::vector<Sample> samples;  // at multiples of kSample_s until the last submission; each holds until the next one
  std::int64_t events = 0;      // that were handled: their number depends on what happens, not on how long it takes
};

inline constexpr double kSample_s = 300;

Outcome replay(const JobTrace& trace, const Demand& demand, const Policy& policy, const Scheduler& scheduler);

// Nodes that stay with inference at this time when nodes go on loan: its demand, with the headroom, and the quantile of
// what it was lately.
int kept_nodes(const Demand& demand, const LoanConfig& loan, double time_s);
// Nodes that inference has at least: its demand with the headroom.
int needed_nodes(int demand_nodes, const LoanConfig& loan);

}  // namespace ms::loan
