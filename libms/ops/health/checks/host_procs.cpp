// The check host.procs (check.h): services that do not run.
#include <fmt/format.h>

#include <set>

#include "base/text.h"
#include "health/checks/check.h"

namespace ms::health {
namespace {

constexpr std::string_view kNoNewJobs =
    " Slurm starts no new job here until slurmd runs, and takes the node for down after SlurmdTimeout.";
constexpr std::size_t kNameBytes = 15;  // that the kernel keeps

Result check_host_procs(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  const std::vector<std::string>& expected = evidence.policy().expect.processes;
  if (expected.empty()) return skipped("expect.processes names none");
  std::set<std::string> running;
  for (const std::string& name : root.list("/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (const auto comm = root.read(fmt::format("/proc/{}/comm", name), 64)) running.insert(*comm);
  }
  if (running.empty()) return skipped("no process can be seen in /proc");
  std::vector<Finding> findings;
  for (const std::string& name : expected) {
    if (running.contains(name.substr(0, kNameBytes))) continue;
    findings.push_back({.severity = Severity::warning,
                        .entity = name,
                        .message = "no such process runs",
                        .remedy = fmt::format("systemctl status {0} says why it ended; start it again "
                                              "(systemctl start {0}).{1}",
                                              name, name == "slurmd" ? kNoNewJobs : "")});
  }
  return judged(std::move(findings), plural(expected.size(), "service"));
}

}  // namespace

extern constinit const Check kHostProcs = {
    .code = "host.procs",
    .summary = "services that do not run",
    .needs = "/proc",
    .explain =
        "A process must run for every name in expect.processes, compared by its first 15 characters as in "
        "/proc/PID/comm: slurmd, sshd, sssd, chronyd, nv-fabricmanager.",
    .remedy = "See systemctl status of the service for why it ended; start it again.",
    .run = check_host_procs};

}  // namespace ms::health
