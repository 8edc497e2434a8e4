// Says what a step takes against what the simulator expects of this run on its machines: once, and again when that has
// changed. Reporter calls it, on rank 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/job_thread.h"
#include "train/config.h"

namespace ms::train {

// Decides when there is something to say. Pure.
class StepWindow {
 public:
  static constexpr std::size_t kSteps = 100;
  static constexpr std::size_t kLasting = 3;  // windows: a change that is over before is none
  static constexpr double kPause_s = 600;     // of steps, between two times
  // `least_s`: of steps, before the first time.
  explicit StepWindow(double least_s = 0) : least_s_(least_s) {}
  // Adds a step of so many seconds. Returns whether it ends the first window of kSteps steps, or the last of kLasting
  // ones that all differ from the one of the last time, by a tenth of its median and by more than steps vary.
  bool add(double seconds);

 private:
  double least_s_;
  std::vector<double> window_;
  std::optional<double> said_s_;  // the median of the last time
  double since_s_ = 0;
  std::size_t changed_ = 0;  // windows in a row
};

// Reading the traces of all ranks takes a while: it happens in another process, ms-tracepp report --brief, in the
// background, and ends with the run at the latest.
class Expectation {
 public:
  // Silent without run.cluster, and where the run writes no traces into run.dir/trace.
  explicit Expectation(const Settings& settings);
  void step(std::int64_t step, double seconds);

 private:
  std::vector<std::string> command_;  // empty: silent
  StepWindow window_;
  std::optional<JobThread> thread_;
};

}  // namespace ms::train
