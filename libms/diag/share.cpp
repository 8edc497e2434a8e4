#include "diag/share.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/error.h"

namespace ms::diag {
namespace {

cpu_set_t mask_now() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) {
    throw Error("diag.cpus", Blame::node, "sched_getaffinity: " + errno_text(errno));
  }
  return mask;
}

}  // namespace

std::string Share::str() const {
  if (static_cast<int>(cpus.size()) == node_cpus) return fmt::format("CPU, {} cores", node_cpus);
  return fmt::format("CPU, {} of {} cores", cpus.size(), node_cpus);
}

Share share_of(const std::vector<int>& allowed, int node_cpus, int job_cpus, const comm::Launch& launch) {
  MS_ASSERT(!allowed.empty(), "a process that may run nowhere");
  Share share{.cpus = allowed, .processes = launch.local_size, .index = launch.local_rank};
  const int here = static_cast<int>(allowed.size());
  share.node_cpus = std::max(node_cpus, here);
  const int together = job_cpus > 0 ? std::min(job_cpus, share.node_cpus) : share.node_cpus;
  const bool bound = here * share.processes <= together;
  if (bound) {
    share.whole_node = here * share.processes == share.node_cpus;
    return share;
  }
  share.whole_node = here == share.node_cpus;
  const int begin = share.index * here / share.processes, end = (share.index + 1) * here / share.processes;
  share.cpus = begin < end ? std::vector<int>(allowed.begin() + begin, allowed.begin() + end)
                           : std::vector<int>{allowed[static_cast<std::size_t>(begin)]};  // more processes than cores
  return share;
}

Share this_share() {
  const cpu_set_t mask = mask_now();
  std::vector<int> allowed;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) allowed.push_back(cpu);
  }
  const char* job_cpus = std::getenv("SLURM_CPUS_ON_NODE");
  return share_of(allowed, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
                  job_cpus == nullptr ? 0 : std::atoi(job_cpus), comm::this_launch());
}

OnCpus::OnCpus(const std::vector<int>& cpus) : before_(mask_now()) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) CPU_SET(cpu, &mask);
  if (::sched_setaffinity(0, sizeof mask, &mask) != 0) {
    throw Error("diag.cpus", Blame::node, fmt::format("cannot run on core {}: {}", cpus.front(), errno_text(errno)));
  }
}

OnCpus::~OnCpus() { ::sched_setaffinity(0, sizeof before_, &before_); }

}  // namespace ms::diag
