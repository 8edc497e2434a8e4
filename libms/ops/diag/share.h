// The share of the node that this process loads. Processes of one launch on the same node measure at the same time, so
// each takes its own cores and is judged by its part of the node's expected performance.
#pragma once

#include <sched.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/sysroot.h"
#include "slurm/launch.h"

namespace ms::diag {

// The CPU time of each core, and how much of it this process and its ended children used.
struct CpuUse {
  double at_s = 0;                    // monotonic
  double own_s = 0;                   // of all cores together
  std::map<int, double> busy_s = {};  // with what the hypervisor took; without interrupts, which serve this process too
};
CpuUse cpu_use(const Sysroot& root);

// The part of the time of some cores that other programs took.
struct Others {
  double all = 0;    // of all of them
  double worst = 0;  // of the one from which they took most: threads in step wait for that
};
Others others_between(const CpuUse& before, const CpuUse& now, const std::vector<int>& cpus);

struct Share {
  std::vector<int> cpus;   // to load
  int node_cpus = 1;       // online
  int processes = 1;       // of this launch on this node
  int index = 0;           // of this one among them
  bool whole_node = true;  // together they have all cores: what is expected of the node may be asked of them

  std::function<Others()> others = [] { return Others{}; };  // since this_share(), what other programs took

  // The part of what is expected of the node.
  double part() const { return static_cast<double>(cpus.size()) / node_cpus; }
  std::string str() const;  // "CPU, 2 of 64 cores"
};

// `allowed` is the affinity mask, `job_cpus` what Slurm gave the job on this node (0: unknown). Processes bound to
// cores of their own keep their masks; processes that share one mask split it.
Share share_of(const std::vector<int>& allowed, int node_cpus, int job_cpus, const slurm::Launch& launch);
Share this_share();

// Binds the calling thread, and the threads that it starts meanwhile, to these cores.
class OnCpus {
 public:
  explicit OnCpus(const std::vector<int>& cpus);
  ~OnCpus();
  OnCpus(const OnCpus&) = delete;
  OnCpus& operator=(const OnCpus&) = delete;

 private:
  cpu_set_t before_{};
};

}  // namespace ms::diag
