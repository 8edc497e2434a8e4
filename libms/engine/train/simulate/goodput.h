// The cost of failures to a job of weeks: its faults are met one after the other, noticed, judged, and recovered from,
// by the numbers of ms-driver (watch/recovery.h) or as without it. Nothing of a step is simulated but how long it
// takes. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "train/simulate/faults.h"
#include "watch/recovery.h"

namespace ms::train {

// [recovery]: what a recovery takes.
struct RecoveryConfig {
  double launch_s = 60;
  double load_s = 60;
  double requeue_s = watch::kQueueWait_s;
  double stall_s = 5;
  double write_s = 120;
  double located = 0.9;
  double operator_s = 1800;
  double slow_factor = 1.1;
  double slow_found_s = 600;
  double hang_timeout_s = watch::WatchLimits{}.hang_s;
  std::int64_t max_attempts = watch::RetryPolicy{}.max_attempts;
  std::int64_t max_idle = watch::RetryPolicy{}.max_idle;
};

inline constexpr double kMostRecovery_s = 30 * 86'400;

inline constexpr Field<RecoveryConfig> kRecoveryFields[] = {
    {"launch", &RecoveryConfig::launch_s,
     "Time from the decision to restart until the ranks can start a step, without the time to load the checkpoint. "
     "ByteRobust (arXiv 2509.16293) reports 46 to 65 s on 2,048 to 16,384 GPUs.",
     Unit::seconds, 0, kMostRecovery_s},
    {"load", &RecoveryConfig::load_s, "Time to load a checkpoint (assumed).", Unit::seconds, 0, kMostRecovery_s},
    {"requeue", &RecoveryConfig::requeue_s,
     "Time from the end of a job to its next start with other nodes. ByteRobust reports 454 to 768 s on 2,048 to "
     "16,384 GPUs.",
     Unit::seconds, 0, kMostRecovery_s},
    {"save_stall", &RecoveryConfig::stall_s,
     "Time that training waits for a save. MegaScale (arXiv 2402.15627) reports several seconds. Without "
     "checkpoint.async training waits for save_write.",
     Unit::seconds, 0, kMostRecovery_s},
    {"save_write", &RecoveryConfig::write_s, "Time from the start of a save to its commit (assumed).", Unit::seconds, 0,
     kMostRecovery_s},
    {"located", &RecoveryConfig::located,
     "Share of the faults for which the driver names the right node. Otherwise the node stays in the job, and the next "
     "attempt fails when it begins. Each such failure gives the driver the same chance again. MegaScale reports more "
     "than 90 %.",
     Unit::none, 0, 1},
    {"operator", &RecoveryConfig::operator_s,
     "Time until an operator finds the node, if there is no driver or the driver stops (assumed).", Unit::seconds, 0,
     kMostRecovery_s},
    {"slow_factor", &RecoveryConfig::slow_factor, "Slow-down of steps by a slow node. MegaScale reports about 10 %.",
     Unit::none, 1, 1000},
    {"slow_found", &RecoveryConfig::slow_found_s, "Time until the driver's checks find a slow node (assumed).",
     Unit::seconds, 1, kMostRecovery_s},
    {"hang_timeout", &RecoveryConfig::hang_timeout_s,
     "As --hang-timeout of ms-driver. Without the driver, run.comm_timeout and run.least_timeout apply.", Unit::seconds,
     0, kMostRecovery_s},
    {"max_attempts", &RecoveryConfig::max_attempts, "As --max-attempts of ms-driver.", Unit::none, 1, 1e6},
    {"max_idle", &RecoveryConfig::max_idle, "As --max-idle of ms-driver.", Unit::none, 1, 1e6},
};

// "recovery.launch=30s". Throws Error("config.invalid", user) with every problem.
RecoveryConfig load_recovery(const std::vector<std::string>& assignments);
// The keys with what they mean, for the manual.
std::vector<std::pair<std::string, std::string>> recovery_manual();

// Where the time of a job goes; the parts add up to it.
enum class TimePart : std::uint8_t { trained, detect, diagnose, restart, lost, save, waiting, slow, storage, shrunk };
inline constexpr std::size_t kTimeParts = 10;
using TimeParts = std::array<double, kTimeParts>;

// A smaller size of the job, with the same global batch.
struct SmallerSize {
  int nodes = 0;
  double slower = 1;  // how many times as long its steps take
};

struct JobOptions {
  int nodes = 1;   // that train
  int spares = 0;  // more, which the job has too
  double seconds = 0;
  double iteration_s = 0;
  double interval_s = 0;  // between saves; rounded to whole steps
  bool driver = true;
  double comm_timeout_s = 600, least_timeout_s = 15;  // the ranks' own
  RecoveryConfig recovery = {};
  double slow_lasts_s = watch::kSlowLasts_s;  // of a slow node, in the mean, as the site knows it
  std::vector<Outage> outages = {};           // of the storage of checkpoints, by time
  // Where spares are exhausted the driver goes on with the largest of these that there are nodes for, and has the job
  // queued again when its whole size is well. From large to small; empty: it waits.
  std::vector<SmallerSize> smaller = {};
};

struct JobOutcome {
  TimeParts parts_s{};
  int interruptions = 0;  // of training
  int requeues = 0;
  int given_up = 0;  // by the driver
  int shrinks = 0;
  double effective() const;
  double at(TimePart part) const { return parts_s[static_cast<std::size_t>(part)]; }
};

// `faults`: of nodes + spares nodes, by time; draw_faults() has them. `seed` draws which faults are located.
JobOutcome simulate_job(const JobOptions& options, std::span<const NodeFault> faults, std::uint64_t seed);

// Seconds from a fault to its alarm.
double detection_s(const JobOptions& options, FaultKind kind);
// Seconds from the alarm to the driver's judgement, at most.
double judgement_s(FaultKind kind);

// A mean over seeds with two standard errors, which one seed does not tell.
struct Estimate {
  double mean = 0;
  std::optional<double> error = {};
};
Estimate estimate(std::span<const double> values);

}  // namespace ms::train
