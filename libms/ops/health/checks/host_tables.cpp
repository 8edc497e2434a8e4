// The check host.tables (check.h): tables of the kernel that are nearly full.
#include <fmt/format.h>

#include "health/checks/check.h"
#include "health/evidence/growth.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr double kFullPercent = 80;

void judge_table(std::string_view table, double used, double size, std::vector<Finding>& findings) {
  if (size <= 0 || 100 * used / size <= kFullPercent) return;
  findings.push_back(about(std::string(table), Severity::warning,
                           fmt::format("{:.0f} of {:.0f} are in use", used, size), 100 * used / size, kFullPercent,
                           "%"));
}

// "neighbour: arp_cache: neighbor table overflow!" and "nf_conntrack: nf_conntrack: table full, dropping packet"
std::optional<std::string_view> full_table(Scan line) {
  if (line.literal("neighbour: ")) {
    const std::string_view table = line.name();
    return table.ends_with(':') && line.rest() == " neighbor table overflow!" ? std::optional("neighbours")
                                                                              : std::nullopt;
  }
  const bool is_full =
      line.literal("nf_conntrack: nf_conntrack: table full") && line.rest().ends_with("dropping packet");
  return is_full ? std::optional("connections") : std::nullopt;
}

// Reads those of the last day: the kernel does not log that a table has room again.
void read_full_tables(Evidence& evidence, std::vector<Finding>& findings) {
  const double now_s = evidence.uptime_s();
  LogTally tally;
  for (const KernelLine& line : evidence.kernel_log().lines) {
    const auto table = line.since_boot_s < now_s - kDay_s ? std::nullopt : full_table(Scan(line.text));
    if (!table) continue;
    tally.add(Severity::warning, std::string(*table), "the table was full: connections failed",
              "Raise net.ipv4.neigh.default.gc_thresh3 above the number of hosts on the networks of the node, or "
              "net.netfilter.nf_conntrack_max; nodes without a firewall need no connection tracking.");
    evidence.mark_judged(line);
  }
  for (Finding& finding : tally.findings()) findings.push_back(std::move(finding));
}

Result check_host_tables(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  std::vector<Finding> findings;
  read_full_tables(evidence, findings);
  bool seen = !findings.empty();
  if (const auto text = root.read("/proc/sys/fs/file-nr", 256)) {  // "3264	0	9223372036854775807"
    Scan scan(*text);
    const auto used = scan.number();
    scan.literal("\t0\t");
    double size = 0;  // more digits than a number here may have: without limit
    if (const auto most = scan.number()) size = static_cast<double>(*most);
    seen = seen || used.has_value();
    if (used) judge_table("open files", static_cast<double>(*used), size, findings);
  }
  const auto load = root.read("/proc/loadavg", 256);  // "0.20 0.18 0.12 1/80 11206": running tasks / all
  const auto pids = root.read_int("/proc/sys/kernel/pid_max");
  const std::size_t slash = load ? load->find('/') : std::string::npos;
  if (slash != std::string::npos && pids) {
    Scan scan(std::string_view(*load).substr(slash + 1));
    seen = true;
    judge_table("tasks", static_cast<double>(scan.number().value_or(0)), static_cast<double>(*pids), findings);
  }
  if (!seen) return skipped("/proc/sys/fs/file-nr and /proc/loadavg cannot be read");
  return judged(std::move(findings));
}

}  // namespace

extern constinit const Check kHostTables = {
    .code = "host.tables",
    .lane = Lane::kernel,
    .summary = "kernel tables that are nearly full",
    .needs = "/proc/sys",
    .user_can_cause = true,
    .explain =
        "Compares the open files of the node with fs.file-max, and its tasks with kernel.pid_max: above 80 percent is "
        "a warning. At 100 percent, nothing can be started or opened. Tables of neighbours and of tracked connections "
        "that the kernel log reports as full are a warning for a day.",
    .remedy = "Find their processes (ls /proc/PID/fd, ps -eLf), and end those left by earlier jobs.",
    .run = check_host_tables};

}  // namespace ms::health
