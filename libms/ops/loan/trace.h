// The input of a replay: the jobs of training, their speed-up curves, and the demand of inference, from files as
// clusters publish them. Every choice that a policy makes (days, copies, which jobs are elastic) is a pure function of
// the file and the policy.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "loan/policy.h"

namespace ms::loan {

// Samples/s by GPUs. From a file of measured steps: for each number of replicas the best n * local_bsz / step_time
// there; linear between two measured numbers, proportional below the first, flat beyond the last, and never falling.
class SpeedCurve {
 public:
  SpeedCurve() = default;                                              // proportional to the GPUs
  explicit SpeedCurve(std::vector<std::pair<double, double>> points);  // sorted by GPUs, both above 0
  static SpeedCurve read(const std::string& path);

  double at(double gpus) const;
  // How much faster than on `base` GPUs.
  double speedup(double base, double gpus) const { return at(gpus) / at(base); }

 private:
  std::vector<std::pair<double, double>> points_;
};

struct TraceJob {
  double submit_s = 0;    // since the replay began
  double work_s = 0;      // run time on `gpus`
  double estimate_s = 0;  // what the scheduler believes that to be
  int gpus = 1;           // without which it does not run
  int max_gpus = 1;       // more than gpus: elastic
  int curve = -1;         // of JobTrace::curves; -1: proportional

  bool elastic() const { return max_gpus > gpus; }
};

struct JobTrace {
  std::vector<TraceJob> jobs;  // by submission
  std::vector<SpeedCurve> curves;
  double span_s = 0;              // the last submission
  double origin_s = 0;            // what the file's clock said at 0
  std::int64_t without_gpus = 0;  // rows that were left out because they ask for none

  const SpeedCurve& curve_of(const TraceJob& job) const;
  double gpu_seconds() const;
};

// Columns: submit, submit_time or timestamp; duration; gpus, num_gpus or gpu_num; max_gpus and time_limit where there
// are such. Error("data.input", user) for a row that makes no sense; Error("loan.jobs", user): there are none, or one
// needs more GPUs than training has.
JobTrace read_jobs(const std::string& path, const Policy& policy);

// Nodes that inference needs, from each time on.
struct Demand {
  std::vector<std::pair<double, int>> steps;  // by time, the first at 0; values differ from one to the next

  int at(double time_s) const;
};

// Either columns time_s and nodes (or gpus), from when on so many are needed; or instances: creation_time,
// deletion_time and gpu_request, empty times for those that were there before or stayed. The replay begins with the
// file's first time; the last value stays. Error("loan.demand", user): more nodes than there are, or a range is to be
// stretched that there is not while jobs come, until `span_s`.
Demand read_demand(const std::string& path, const Policy& policy, double span_s);

}  // namespace ms::loan
