#include "health/repair/local.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <set>

#include "base/handle.h"
#include "base/lock_file.h"
#include "base/number.h"
#include "base/print.h"
#include "base/subprocess.h"
#include "base/text.h"
#include "health/act/decide.h"
#include "health/act/flow.h"
#include "health/act/prolog.h"
#include "health/act/remedies.h"
#include "health/checks/registry.h"
#include "health/evidence/mounts.h"
#include "health/evidence/processes.h"
#include "health/repair/plan.h"
#include "health/run/runner.h"
#include "slurm/commands.h"

namespace ms::health {
namespace {

constexpr int kMended = 0, kFailed = 2, kNotNow = 3;
constexpr double kTermPatience_s = 5, kKillLook_s = 0.1, kSlurm_s = 10;
constexpr std::size_t kMaxSaid = 300;

// A process of a user's that a job began, by its environment or cgroup. Slurm says that no job is on this node.
bool is_leftover(const Sysroot& root, const std::string& pid, const Policy& policy) {
  const std::optional<Process> process = read_process(root, pid);
  if (!process || process->user == 0 || contains(policy.expect.strays, process->name)) return false;
  if (root.read(fmt::format("/proc/{}/cgroup", pid)).value_or("").find("/job_") != std::string::npos) return true;
  const std::string environment = root.read(fmt::format("/proc/{}/environ", pid)).value_or("");
  constexpr std::string_view kJobVariable = "SLURM_JOB_ID=";
  return environment.starts_with(kJobVariable) ||
         environment.find('\0' + std::string(kJobVariable)) != std::string::npos;
}

// Sends a signal to each, 0 for none; returns how many there are. A process is opened before it is looked at: its
// number may be another's when it is signalled.
int signal_leftovers(const Policy& policy, int signal) {
  const Sysroot root;
  int found = 0;
  for (const std::string& name : root.list("/proc")) {
    const pid_t pid = whole_number<pid_t>(name).value_or(0);
    if (pid <= 1 || pid == ::getpid()) continue;
    const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!is_leftover(root, name, policy)) continue;
    ++found;
    if (process) {
      ::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0);
    } else {  // an old kernel
      ::kill(pid, signal);
    }
  }
  return found;
}

// Seconds pass before SIGKILL: `may_touch` is asked again.
int end_leftovers(const Policy& policy, const std::function<bool()>& may_touch) {
  SystemClock clock;
  const int first = signal_leftovers(policy, SIGTERM);
  const double end_s = clock.now_s() + kTermPatience_s;
  for (int left = first; left > 0 && clock.now_s() < end_s; left = signal_leftovers(policy, 0)) {
    clock.sleep_s(kKillLook_s);
  }
  if (first > 0 && !may_touch()) return kNotNow;
  if (first > 0) signal_leftovers(policy, SIGKILL);
  if (first > 0) print_out("{} of ended jobs ended\n", plural(first, "process"));
  return kMended;
}

int run_here(const std::vector<std::string>& argv, double deadline_s) {
  const SubprocessResult done = run_subprocess(argv, {.deadline_s = deadline_s});
  const std::string words = plain_text(done.err.empty() ? done.out : done.err, kMaxSaid);
  print_out("{}: {}{}{}\n", argv[0], done.ok() ? "done" : done.describe(), words.empty() ? "" : ", ", words);
  return done.ok() ? kMended : kFailed;
}

// Mounts anew those of the site's own mounts that the check finds critical.
int remount(const Policy& policy, double deadline_s) {
  const Check* check = find_check(passive_checks(), "disk.mounts");
  const Evidence evidence(policy, SystemClock().wall_s(), 0, {});
  const std::vector<std::string> ours = expected_mounts(evidence);
  std::set<std::string> bad;
  for (const Result& result : run_checks({*check}, policy, {})) {
    for (const Finding& finding : result.findings) {
      if (finding.severity == Severity::critical && contains(ours, finding.entity)) bad.insert(finding.entity);
    }
  }
  int status = kMended;
  for (const std::string& path : bad) {
    const std::vector<Mount> mounts = parse_mountinfo(Sysroot().read("/proc/self/mountinfo").value_or(""));
    if (mounted_at(mounts, path) != nullptr) run_here({"umount", "-f", "-l", path}, deadline_s);
    status = std::max(status, run_here({"mount", path}, deadline_s));
  }
  if (bad.empty()) print_out("disk.mounts finds nothing now\n");
  return status;
}

int run_commands(const Remedy& remedy, const Policy& policy) {
  for (std::string_view command : remedy.commands) {
    const bool may_fail = command.starts_with('-');
    if (may_fail) command.remove_prefix(1);
    std::vector<std::string> argv = split(command, ' ');
    for (std::string& word : argv) {
      if (word == "{nvidia_smi}") word = policy.paths.nvidia_smi;
    }
    if (run_here(argv, remedy.deadline_s) != kMended && !may_fail) return kFailed;
  }
  return kMended;
}

}  // namespace

int use_remedy_here(const Policy& policy, const std::string& node, const std::string& name) {
  const Remedy* remedy = find_remedy(name);
  if (remedy == nullptr || name == kReboot) {
    throw user_error("repair.here", fmt::format("'{}' is no remedy for a node itself", plain_text(name, kMaxSaid)),
                     "REMEDIES in ms-diag(1) lists them; for a reboot: scontrol reboot");
  }
  if (::geteuid() != 0) throw user_error("repair.here", "only root may repair a node");
  const Refusal refusal{.kind = "state.directory"};
  const UniqueFd directory = open_own_directory(policy.paths.state, 0700, 0077, refusal);
  const UniqueFd lock = try_lock_at(directory, "repair.lock", refusal);
  if (!lock) {
    print_out("another remedy is at work\n");
    return kNotNow;
  }
  SystemClock clock;
  const auto may_touch = [&] {
    const slurm::Node record = own_node(node, operators_world(policy, clock));
    const slurm::Commands slurm(
        {.scontrol = policy.paths.scontrol, .conf = policy.paths.slurm_conf, .deadline_s = kSlurm_s});
    const bool may =
        may_take_up(record, drain_users(slurm.config())) && may_be_loaded(record) && slurm.jobs_on(node).empty();
    if (!may) print_out("{} has jobs, or is not drained by ms-diag alone\n", node);
    return may;
  };
  if (!may_touch()) return kNotNow;
  const bool may_end = name == kLeftovers || (remedy->ends_leftovers && contains(policy.repair.remedies, kLeftovers));
  const int ended = may_end ? end_leftovers(policy, may_touch) : kMended;
  if (ended != kMended || name == kLeftovers) return ended;
  return name == "remount" ? remount(policy, remedy->deadline_s) : run_commands(*remedy, policy);
}

}  // namespace ms::health
