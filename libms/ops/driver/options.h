// The options of ms-driver run, and where they come from.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "base/cli.h"
#include "driver/launch.h"
#include "driver/pool.h"
#include "driver/watcher.h"
#include "watch/recovery.h"

namespace ms::driver {

struct DriverOptions {
  std::vector<std::string> nodes;  // of the allocation
  int job = 0, restarts = 0;
  std::string partition;  // of the job
  std::string shown_job;  // as squeue shows it: "12", or "10_2" of an array
  std::string run_dir;
  LaunchSpec launch;
  std::size_t spares = 0;
  std::set<std::string> kept_for_last = {};  // of the nodes: they are the spares
  Segments segments = {};                    // of the attempts
  std::size_t least_nodes = 0;               // an attempt with fewer is not made; 0: all but the spares
  std::size_t most_nodes = 0;  // of an elastic run's job, which is queued again to grow; 0: it does not grow
  watch::RetryPolicy retry = {};
  int diagnose_level = 2;     // of ms-diag, for suspects; 0: they are not looked at
  int preflight_level = 0;    // for all nodes before the first attempt; 0: none
  double health_s = 60;       // between two looks of ms-diag at each node while the run trains; 0: none
  bool replace_slow = false;  // nodes, where that costs less than they do: see Pace and watch::answer_slow()
  double queue_wait_s = watch::kQueueWait_s;  // for the job to get other nodes
  double ends_s = 0;                          // wall clock, when the job's time is up; 0: not known
  bool shrink = false;                        // with too few nodes, a run of ms-train with a smaller dp
  WatchLimits limits = {};
  std::string program;       // ms-driver itself, for agents
  std::string munge_socket;  // for agents; empty: the usual one
  std::string diag = "ms-diag", netcheck = "ms-netcheck";
  std::string notify;    // an ms-notify.toml(5); empty: no messages are sent
  bool comment = false;  // the job's comment in Slurm says how the run does
  int max_requeues = 0;  // the job is queued again at most so often; 0: never
  std::string slurm_conf;
  int signals = -1;  // a signalfd: TERM, INT, HUP, USR2
};

// A variable of the environment; empty: it is not set.
const char* environment(const char* name);
// The directory of the run that the argument `name` gives; without it that of this job, or this one outside a job.
std::string run_dir_of(const Args& args, const char* name);
// The options of "ms-driver run", from its arguments and from the job that it runs in. Throws user errors.
DriverOptions options_of(const Args& args);

}  // namespace ms::driver
