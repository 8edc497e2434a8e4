// The check host.strays (check.h): busy processes of users that belong to no job.
#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/processes.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr std::uint64_t kFirstUser = 1000;      // where login.defs has no UID_MIN; below are the system's own
constexpr std::uint64_t kFirstDynamic = 61184;  // of systemd's DynamicUser=, for services
constexpr std::uint64_t kLastDynamic = 65519;
constexpr std::uint64_t kNobody = 65534;
constexpr double kBusy_s = 60;          // of processor time since its start: a command or two are no matter
constexpr double kLook_s = 0.2;         // between two looks, which tell whether it is busy now: twenty clock ticks
constexpr double kBusyCores = 0.25;     // between the looks: a shell that waits does no harm, whatever it did before
constexpr double kLarge_mib = 1024;     // of memory
constexpr std::size_t kMostStrays = 8;  // that are named

// Services that start what users ask for, which stays in their cgroup where no session gets its own.
constexpr std::string_view kUserServices[] = {"ssh", "cron", "atd", "slurmd"};

// "UID_MIN    1000"
std::uint64_t first_user(const Sysroot& root) {
  for (const std::string& line : split(root.read("/etc/login.defs").value_or(""), '\n')) {
    Scan scan(line);
    if (!scan.literal("UID_MIN")) continue;
    while (scan.literal("\t") || scan.literal(" ")) continue;
    return scan.number().value_or(kFirstUser);
  }
  return kFirstUser;
}

// "0::/system.slice/sssd.service", or "1:name=systemd:/system.slice/sssd.service" of cgroup v1
bool is_service(const std::string& cgroup) {
  constexpr std::string_view kSlice = ":/system.slice/";
  const std::size_t at = cgroup.find(kSlice);
  if (at == std::string::npos) return false;
  const std::string_view name = std::string_view(cgroup).substr(at + kSlice.size());
  // "system-ssh.slice" and "sshd.service" alike
  return std::ranges::none_of(kUserServices, [&](std::string_view service) {
    return name.starts_with(service) || name.starts_with(fmt::format("system-{}", service));
  });
}

// Slurm's daemon for a step has a cgroup, by whichever version; without one no process can be told from a job's.
bool jobs_have_cgroups(const Sysroot& root) {
  for (const char* directory : {"/sys/fs/cgroup/system.slice", "/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/freezer",
                                "/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
    for (const std::string& name : root.list(directory)) {
      if (name.find("slurmstepd.scope") != std::string::npos || name == "slurm" || name.starts_with("slurm_")) {
        return true;
      }
    }
  }
  return false;
}

// A process of a user's, numbered from `first` on, that is in no cgroup of a job; nullopt: it is none, or gone.
std::optional<Process> stray_of(const Sysroot& root, const std::string& pid, std::uint64_t first) {
  const auto cgroup = root.read(fmt::format("/proc/{}/cgroup", pid), 8192);
  if (!cgroup || cgroup->find("/job_") != std::string::npos || is_service(*cgroup)) return std::nullopt;
  const std::optional<Process> process = read_process(root, pid);
  if (!process || process->user < first || process->user == kNobody) return std::nullopt;
  const bool dynamic = process->user >= kFirstDynamic && process->user <= kLastDynamic;
  return dynamic ? std::nullopt : process;
}

Result check_host_strays(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  if (!jobs_have_cgroups(root))
    return skipped("Slurm does not use cgroups for jobs here, so the owner of processes is unknown");
  const std::vector<std::string>& may = evidence.policy().expect.strays;
  const std::uint64_t first = first_user(root);
  std::vector<Finding> findings;
  std::vector<std::pair<std::string, Process>> suspects;
  std::size_t seen = 0;
  for (const std::string& pid : root.list("/proc")) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::optional<Process> stray = stray_of(root, pid, first);
    if (!stray || std::ranges::find(may, stray->name) != may.end()) continue;
    ++seen;
    if (stray->cpu_s >= kBusy_s || stray->memory_mib >= kLarge_mib) suspects.emplace_back(pid, *stray);
  }
  const double looked_s = monotonic_s();
  if (!suspects.empty()) SystemClock().sleep_s(kLook_s);
  for (const auto& [pid, before] : suspects) {
    const std::optional<Process> stray = stray_of(root, pid, first);
    if (!stray || findings.size() >= kMostStrays) continue;
    const double cores = (stray->cpu_s - before.cpu_s) / (monotonic_s() - looked_s);
    const bool large = stray->memory_mib >= kLarge_mib;
    if (cores < kBusyCores && !large) continue;
    findings.push_back(
        {.severity = Severity::warning,
         .entity = "process " + pid,
         .message = fmt::format("{} is in no job and {}holds {} of the node's memory", describe_process(root, *stray),
                                cores < kBusyCores ? "" : fmt::format("is busy on {:.1f} cores, ", cores),
                                format_size(stray->memory_mib * 1024 * 1024)),
         .measured = large ? stray->memory_mib : cores,
         .limit = large ? kLarge_mib : kBusyCores,
         .unit = large ? "MiB" : "cores",
         .remedy = fmt::format("Ask {1} whether it is still needed: most were left behind by a job. If not, or if "
                               "nobody answers and a job needs the node, end it: kill {0}, and a minute later, if it "
                               "is still there, kill -9 {0}. pam_slurm_adopt keeps users off nodes where they have no "
                               "job.",
                               pid, user_of(root, *stray))});
  }
  return judged(std::move(findings), plural(seen, "process") + " of users outside jobs, none of them busy");
}

}  // namespace

extern constinit const Check kHostStrays = {
    .code = "host.strays",
    .summary = "busy user processes outside jobs",
    .needs = "cgroups of Slurm (ProctrackType=proctrack/cgroup)",
    .blame = Blame::user,
    .user_can_cause = true,
    .explain =
        "Warns of a user process outside all job cgroups that is busy or holds 1 GiB of memory: left by an earlier "
        "job, or started without Slurm. A process is busy if it has used at least a minute of CPU time since its "
        "start, and at least a quarter of a core between two samples 0.2 seconds apart. Users have IDs from UID_MIN of "
        "/etc/login.defs on, except 61184 to 65519, which systemd gives to services. The check ignores the names in "
        "expect.strays, idle processes, and services in system.slice. It includes services that start commands of "
        "users (sshd, cron, atd, slurmd). If Slurm tracks processes without cgroups, nothing is judged.",
    .remedy = "Ask its user, or end it. pam_slurm_adopt keeps users off nodes where they have no job.",
    .run = check_host_strays};

}  // namespace ms::health
