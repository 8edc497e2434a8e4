// The check host.swap (check.h): memory that was swapped out.
#include <fmt/format.h>

#include <map>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr double kSwappedPercent = 5;  // of the memory

Result check_host_swap(Evidence& evidence) {
  const auto text = evidence.root().read("/proc/meminfo");
  if (!text) return skipped("/proc/meminfo cannot be read");
  std::map<std::string, double> kib;
  for (const std::string& line : split(*text, '\n')) {
    Scan scan(line);
    const std::string name(scan.name());  // "SwapTotal:"
    scan.blanks();
    if (const auto value = scan.number()) kib[name] = static_cast<double>(*value);
  }
  const double total = kib["SwapTotal:"], used = total - kib["SwapFree:"], memory = kib["MemTotal:"];
  if (total == 0 || memory == 0) return passed("no swap");
  const double percent = 100 * used / memory;
  if (percent <= kSwappedPercent) return passed(fmt::format("{} swapped out", format_size(used * 1024)));
  return judged({about("swap", Severity::warning,
                       fmt::format("{} are swapped out, {:.0f}% of the memory", format_size(used * 1024), percent),
                       percent, kSwappedPercent, "%")});
}

}  // namespace

extern constinit const Check kHostSwap = {
    .code = "host.swap",
    .summary = "memory that was swapped out",
    .needs = "/proc/meminfo",
    .user_can_cause = true,
    .explain =
        "Compares the swap in use with the memory of the node: above 5 percent is a warning. Swapped-out pages are "
        "slow to access, and indicate that earlier jobs used too much memory. A node without swap is fine.",
    .remedy =
        "Find its processes (/proc/PID/status, VmSwap), end those left by earlier jobs, then swapoff -a and swapon -a.",
    .run = check_host_swap};

}  // namespace ms::health
