// A job with failures, over many seeds: where its time goes, and what other checkpoint intervals and numbers of spare
// nodes would give. The same seeds serve every choice, so that choices differ by what they are. Pure.
#pragma once

#include <optional>
#include <vector>

#include "train/config.h"
#include "train/simulate/goodput.h"

namespace ms::train {

// Seconds of work between two saves of the job, as the configuration has it; "auto" knows the rate of `source`. Throws
// Error("config.invalid", user) where it saves nothing on the way.
double save_interval_s(const CheckpointConfig& config, const FaultSource& source, const JobOptions& job);

struct IntervalChoice {
  double interval_s = 0;
  Estimate effective;
  double lost = 0, save = 0;  // shares of the time
};

struct SpareChoice {
  int spares = 0;
  Estimate effective;
  double waiting = 0;   // share of the time
  double of_held = 0;   // effective, of the time of all nodes held
  double requeues = 0;  // of a run
};

struct FailureStudy {
  JobOptions job;
  int seeds = 0;
  StorageOutages storage;
  double per_node_day = 0, mean_repair_s = 0;  // of the faults
  Estimate effective, interruptions;
  TimeParts shares{};  // of the time, means
  double requeues = 0, given_up = 0, shrinks = 0;
  std::vector<IntervalChoice> intervals = {};  // from short to long
  std::size_t best_interval = 0;               // in `intervals`
  // In `intervals`, too: Daly's (ckpt/interval.h) for the stall of a save and the mean time between interruptions;
  // nullopt where nothing interrupts, or saves cost nothing.
  std::optional<std::size_t> daly = {};
  std::vector<SpareChoice> spares = {};
  std::size_t best_spares = 0;  // in `spares`: the most work for all nodes held
};

// Draws the outages of storage as it draws the faults, which tell how long nodes are slow: of `wanted`, outages and
// slow_lasts_s do not matter.
FailureStudy study_failures(const JobOptions& wanted, const FaultSource& source, const StorageOutages& storage,
                            int seeds);

}  // namespace ms::train
