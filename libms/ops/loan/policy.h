// The policy of ms-loan: one TOML file (ms-loan.toml(5), made from the tables in policy.cpp). It says which nodes are
// loaned, how much stays with inference, how victims and extra workers are chosen, and what a replay plays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.h"

namespace ms::loan {

struct ClusterConfig {
  std::int64_t train_nodes = 443;  // the defaults are the clusters of the paper on Aryl: 3,544 and 4,160 GPUs
  std::int64_t inference_nodes = 520;
  std::int64_t gpus_per_node = 8;
};

struct LoanConfig {
  double poll_s = 10;   // how often demand is read
  double grace_s = 90;  // from rising demand to the node's return: includes one poll
  double lend_interval_s = 300;
  double reserve_quantile = 0.95;
  double reserve_window_s = 3600;
  double headroom_percent = 2;
  bool grow = true;
  bool shrink = true;

  // From the poll that sees a rise to the node's return. At least 0 in a valid policy.
  double return_s() const { return grace_s - poll_s; }
};

struct ScheduleConfig {
  double interval_s = 300;
  double horizon_s = 1800;
  double settle_s = 600;
  std::int64_t backfill_depth = 100;
};

struct JobsConfig {
  std::int64_t days = 0;
  double copies = 1;
  std::int64_t gpus_times = 1;
  double elastic_percent = 0;
  std::int64_t max_times = 2;
  std::vector<std::string> curves;
  double estimate_error_percent = 0;
  // Measured by tests/bench/loan_overheads.sh on the test cluster, with a tiny model.
  double preempt_overhead_s = 4.1;
  double scale_overhead_s = 7.5;
  std::int64_t seed = 1;
};

struct DemandConfig {
  std::string file = {};
  std::vector<std::string> command = {};
  double low_percent = -1;
  double high_percent = -1;

  bool scaled() const { return low_percent >= 0; }
};

// The Slurm in which observe and act work.
struct SlurmConfig {
  std::string nodes;
  std::string loan_partition = "loan";
  std::string signal = "USR1";
  std::string state = "/var/lib/ms-loan";
  std::string scontrol = "/usr/bin/scontrol";
  std::string conf;
  double deadline_s = 5;
  double end_s = 5;
};

struct Policy {
  ClusterConfig cluster = {};
  LoanConfig loan = {};
  ScheduleConfig schedule = {};
  JobsConfig jobs = {};
  DemandConfig demand = {};
  SlurmConfig slurm = {};

  double train_gpus() const { return static_cast<double>(cluster.train_nodes * cluster.gpus_per_node); }
  double inference_gpus() const { return static_cast<double>(cluster.inference_nodes * cluster.gpus_per_node); }
};

void bind(ConfigSchema& schema, Policy& policy);

// Error("config.invalid", user) with every problem of the file, rules between keys included. Paths in it are relative
// to the file's directory.
Policy load_policy(const std::string& path);

std::string policy_page();    // ms-loan.toml(5)
std::string sample_policy();  // such a file with every key commented out

}  // namespace ms::loan
