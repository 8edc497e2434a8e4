// The check host.tables (check.h): tables of the kernel that are nearly full.
#include <fmt/format.h>

#include "health/checks/check.h"
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

Result check_host_tables(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  std::vector<Finding> findings;
  bool seen = false;
  if (const auto text = root.read("/proc/sys/fs/file-nr", 256)) {  // "3264	0	9223372036854775807"
    Scan scan(*text);
    const auto used = scan.number();
    scan.literal("\t0\t");
    double size = 0;  // more digits than a number here may have: without limit
    if (const auto most = scan.number()) size = static_cast<double>(*most);
    seen = used.has_value();
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
    .summary = "kernel tables that are nearly full",
    .needs = "/proc/sys",
    .user_can_cause = true,
    .explain =
        "Compares the open files of the node with fs.file-max, and its tasks with kernel.pid_max: above 80 percent is "
        "a warning. At 100 percent, nothing can be started or opened.",
    .remedy = "Find their processes (ls /proc/PID/fd, ps -eLf), and end those left by earlier jobs.",
    .run = check_host_tables};

}  // namespace ms::health
