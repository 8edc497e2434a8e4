// The check host.hung (check.h): what the kernel logged of stuck tasks, processors and of its own bugs. Lines are read
// strictly (scan.h).
#include <fmt/format.h>

#include "health/checks/check.h"
#include "health/evidence/growth.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr std::string_view kKernelBug = "the kernel hit a bug of its own and killed what ran there";

struct KernelTrouble {
  std::vector<std::string_view> prefixes;
  std::string_view must_follow;  // somewhere behind the prefix
  std::string_view message;
  bool passes;                                       // the kernel goes on unharmed afterwards: it counts for a day
  bool (*is_rest)(std::string_view rest) = nullptr;  // where a process's name may hold the whole prefix
};

// "0002 [#1] PREEMPT SMP NOPTI"
bool is_rest_of_oops(std::string_view rest) {
  const std::size_t count = rest.rfind(" [#");
  if (count == std::string_view::npos) return false;
  Scan scan(rest.substr(count));
  scan.literal(" [#");
  return scan.number() && scan.literal("]") &&
         scan.rest().find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ ") == std::string_view::npos;
}

// "mm/slub.c:306!"
bool is_rest_of_bug(std::string_view rest) {
  const std::size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || rest.find(' ') != std::string_view::npos) return false;
  Scan line(rest.substr(colon + 1));
  return line.number() && line.literal("!") && line.at_end();
}

const std::vector<KernelTrouble>& kernel_troubles() {
  static const std::vector<KernelTrouble> kTroubles = {
      {{"watchdog: BUG: soft lockup - CPU#", "NMI watchdog: BUG: soft lockup - CPU#"},
       " stuck for ",
       "a processor did not schedule for a long time (soft lockup)",
       true},
      {{"watchdog: Watchdog detected hard LOCKUP on cpu ", "NMI watchdog: Watchdog detected hard LOCKUP on cpu "},
       "",
       "a processor did not take interrupts for a long time (hard lockup)",
       false},
      {{"watchdog: CPU"},
       ": Watchdog detected hard LOCKUP on cpu ",
       "a processor did not take interrupts for a long time (hard lockup)",
       false},
      {{"SError Interrupt on CPU"},
       ", code 0x",
       "a processor took an error of the hardware without an address (SError)",
       false},
      {{"Internal error: synchronous external abort: "},
       "[#",
       "the kernel read memory or a device that answered with an error",
       false},
      {{"rcu: INFO: rcu_sched ", "rcu: INFO: rcu_preempt ", "rcu: INFO: rcu_tasks"},
       "stall",
       "a processor held up the kernel's bookkeeping (RCU stall)",
       true},
      {{"BUG: workqueue lockup - pool "}, "", "the kernel's own workers made no progress (workqueue lockup)", true},
      {{"BUG: unable to handle ", "BUG: kernel NULL pointer dereference", "general protection fault",
        "Internal error: Oops"},
       "",
       kKernelBug,
       false},
      {{"Oops: "}, "", kKernelBug, false, is_rest_of_oops},
      {{"kernel BUG at "}, "", kKernelBug, false, is_rest_of_bug},
      {{"BUG: Bad page state in process ", "BUG: Bad page map in process "},
       "pfn:",
       "the kernel found its page tables damaged",
       false},
  };
  return kTroubles;
}

std::optional<std::uint64_t> cpu_in(std::string_view text) {
  for (const std::string_view words : {"LOCKUP on cpu ", "soft lockup - CPU#", "SError Interrupt on CPU"}) {
    const std::size_t at = text.find(words);
    if (at != std::string_view::npos) return Scan(text.substr(at + words.size())).number();
  }
  return std::nullopt;
}

// "INFO: task python3:4711 blocked for more than 120 seconds."; the name is the user's, and may hold anything.
bool read_blocked_task(Scan line, LogTally& tally) {
  if (!line.literal("INFO: task ")) return false;
  constexpr std::string_view kFor = " for more than ";
  std::size_t blocked = std::string_view::npos;
  for (const std::string_view words : {" blocked for more than ", " blocked in I/O wait for more than "})
    if (blocked == std::string_view::npos) blocked = line.rest().rfind(words);
  if (blocked == std::string_view::npos) return false;
  const std::string_view task = line.rest().substr(0, blocked);
  Scan end(line.rest().substr(line.rest().find(kFor, blocked) + kFor.size()));
  const auto seconds = end.number();
  const std::size_t colon = task.rfind(':');
  if (!seconds || !end.literal(" seconds.") || !end.at_end() || colon == std::string_view::npos) return false;
  tally.add(Severity::warning, fmt::format("task {}", printable(task.substr(0, colon))),
            fmt::format("was blocked in the kernel for more than {} s", *seconds));
  return true;
}

// "oom-kill:constraint=CONSTRAINT_NONE,...,global_oom,task_memcg=/system.slice/munge.service,task=munged,pid=8,uid=998":
// a service of the node, and no job that slurmd starts in its own control group.
bool read_killed_service(Scan line, LogTally& tally) {
  if (!line.literal("oom-kill:constraint=")) return false;
  constexpr std::string_view kService = ",global_oom,task_memcg=/system.slice/";
  constexpr std::uint64_t kLastSystemUser = 999;
  const std::size_t at = line.rest().find(kService);
  const std::size_t user = line.rest().rfind(",uid=");
  if (at == std::string_view::npos || user == std::string_view::npos || user < at) return false;
  Scan uid(line.rest().substr(user));
  uid.literal(",uid=");
  const auto number = uid.number();
  const std::string_view service = Scan(line.rest().substr(at + kService.size())).name();
  if (!service.ends_with(".service") || !number || *number > kLastSystemUser || !uid.at_end()) return false;
  tally.add(Severity::warning, printable(service), "was killed: the memory of the node ran out",
            "See that the service runs (systemctl status), and start it again. Give jobs less memory than the node has "
            "(RealMemory, MemSpecLimit).");
  return true;
}

Result check_host_hung(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped("the kernel's log cannot be read: " + log.error);
  double day_began_s = 0;
  if (const auto uptime = evidence.root().read("/proc/uptime")) {
    day_began_s = static_cast<double>(Scan(*uptime).number().value_or(0)) - kDay_s;
  }
  LogTally tally;
  for (const KernelLine& line : log.lines) {
    const bool today = line.since_boot_s >= day_began_s;
    if (today && (read_blocked_task(Scan(line.text), tally) || read_killed_service(Scan(line.text), tally))) {
      evidence.mark_judged(line);
      continue;
    }
    for (const KernelTrouble& trouble : kernel_troubles()) {
      Scan scan(line.text);
      if ((trouble.passes && !today) || !scan.one_of(trouble.prefixes)) continue;
      if (scan.rest().find(trouble.must_follow) == std::string_view::npos) continue;
      if (trouble.is_rest != nullptr && !trouble.is_rest(scan.rest())) continue;
      const auto cpu = cpu_in(line.text);
      tally.add(Severity::warning, cpu ? fmt::format("cpu {}", *cpu) : "kernel", std::string(trouble.message));
      evidence.mark_judged(line);
      break;
    }
  }
  return judged(tally.findings());
}

}  // namespace

extern constinit const Check kHostHung = {
    .code = "host.hung",
    .lane = Lane::kernel,
    .summary = "hung tasks, CPU lockups, kernel bugs, or services killed for lack of memory",
    .needs = "/dev/kmsg",
    .user_can_cause = true,
    .explain =
        "Looks in the kernel log for blocked tasks, soft and hard lockups, RCU stalls, kernel bugs (Oops), errors of "
        "the hardware that arm64 reports as SError or synchronous external abort, and services of the node that were "
        "killed because its memory ran out. Blocked tasks, stalls and killed services count for "
        "a day. They are often caused by a slow file system, so this only warns. After a "
        "kernel bug the kernel continues in a damaged state, so the finding remains until the node reboots.",
    .remedy = "Read the kernel log around the line; reboot a node with a kernel bug.",
    .run = check_host_hung};

}  // namespace ms::health
