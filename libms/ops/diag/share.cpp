#include "diag/share.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

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

double used_s(int who) {
  rusage use{};
  ::getrusage(who, &use);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

}  // namespace

CpuUse cpu_use(const Sysroot& root) {
  // cpuN user nice system idle iowait irq softirq steal
  constexpr std::size_t kUser = 1, kNice = 2, kSystem = 3, kSteal = 8;
  const auto tick_s = 1.0 / static_cast<double>(::sysconf(_SC_CLK_TCK));
  CpuUse use{.at_s = monotonic_s(), .own_s = used_s(RUSAGE_SELF) + used_s(RUSAGE_CHILDREN)};
  for (const std::string& line : split(root.read("/proc/stat").value_or(""), '\n')) {
    const std::vector<std::string> words = split(line, ' ');
    if (!line.starts_with("cpu") || line.starts_with("cpu ") || words.size() <= kSteal) continue;
    double ticks = 0;
    for (const std::size_t word : {kUser, kNice, kSystem, kSteal}) ticks += std::atof(words[word].c_str());
    use.busy_s[std::atoi(words[0].c_str() + 3)] = ticks * tick_s;
  }
  return use;
}

Others others_between(const CpuUse& before, const CpuUse& now, const std::vector<int>& cpus) {
  const double elapsed_s = now.at_s - before.at_s, cores = static_cast<double>(cpus.size());
  const double own_s = now.own_s - before.own_s;
  double all_s = 0, worst_s = 0;
  for (const int cpu : cpus) {
    const auto first = before.busy_s.find(cpu), last = now.busy_s.find(cpu);
    if (first == before.busy_s.end() || last == now.busy_s.end()) continue;
    const double busy_s = last->second - first->second;
    all_s += busy_s;
    worst_s = std::max(worst_s, busy_s - own_s / cores);
  }
  if (elapsed_s <= 0) return {};
  return {.all = std::clamp((all_s - own_s) / (elapsed_s * cores), 0.0, 1.0),
          .worst = std::clamp(worst_s / elapsed_s, 0.0, 1.0)};
}

std::string Share::str() const {
  if (static_cast<int>(cpus.size()) == node_cpus) return fmt::format("CPU, {} cores", node_cpus);
  return fmt::format("CPU, {} of {} cores", cpus.size(), node_cpus);
}

Share share_of(const std::vector<int>& allowed, int node_cpus, int job_cpus, const slurm::Launch& launch) {
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
  Share share = share_of(allowed, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)),
                         job_cpus == nullptr ? 0 : std::atoi(job_cpus), slurm::this_launch());
  share.others = [before = cpu_use(Sysroot()), cpus = share.cpus] {
    return others_between(before, cpu_use(Sysroot()), cpus);
  };
  return share;
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
