// The check host.frag (check.h): free memory that is in small pieces.
#include <fmt/format.h>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr double kLeastPercent = 1;
constexpr std::size_t kHugeOrder = 9;    // 2 MiB of 4 KiB pages
constexpr double kEnoughPages = 262144;  // 1 GiB

// "Node 0, zone   Normal   1046    527    128 ...": free blocks of 1, 2, 4 ... pages
Result check_host_frag(Evidence& evidence) {
  const auto text = evidence.root().read("/proc/buddyinfo");
  if (!text) return skipped("/proc/buddyinfo cannot be read");
  double free = 0, huge = 0;
  for (const std::string& line : split(*text, '\n')) {
    Scan scan(line);
    if (!scan.literal("Node ") || !scan.number() || !scan.literal(", zone")) continue;
    scan.blanks();
    scan.name();
    scan.blanks();
    double pages = 1;
    for (std::size_t order = 0; !scan.at_end(); ++order, pages *= 2) {
      const auto blocks = scan.number();
      if (!blocks) break;
      scan.blanks();
      free += static_cast<double>(*blocks) * pages;
      if (order >= kHugeOrder) huge += static_cast<double>(*blocks) * pages;
    }
  }
  if (free < kEnoughPages) return passed("little memory is free");
  const double percent = 100 * huge / free;
  if (percent >= kLeastPercent) return passed(fmt::format("{:.0f}% of the free memory is in blocks of 2 MiB", percent));
  return judged({about("memory", Severity::warning,
                       fmt::format("{:.1f}% of the free memory is in blocks of 2 MiB and more", percent), percent,
                       kLeastPercent, "%")});
}

}  // namespace

extern constinit const Check kHostFrag = {
    .code = "host.frag",
    .summary = "fragmented free memory",
    .needs = "/proc/buddyinfo",
    .user_can_cause = true,
    .explain =
        "Sums the free memory by block size. If less than one percent of it is in blocks of at least 2 MiB while more "
        "than 1 GiB is free, huge pages and large registrations fail or take seconds.",
    .remedy = "echo 1 >/proc/sys/vm/compact_memory; if it returns, drop caches between jobs, or reboot the node.",
    .run = check_host_frag};

}  // namespace ms::health
