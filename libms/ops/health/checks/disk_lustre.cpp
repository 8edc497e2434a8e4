// The check disk.lustre (check.h): a Lustre client that is unwell or was evicted.
#include <fmt/format.h>

#include <optional>

#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

// "LustreError: 167-0: scratch-OST0001-osc-ffff8a: This client was evicted by scratch-OST0001; in progress ..."
bool read_eviction(Scan line, LogTally& tally) {
  if (!line.literal("LustreError: ")) return false;
  Scan behind = line;
  if (behind.number() && behind.literal("-") && behind.number() && behind.literal(": ")) line = behind;
  if (!line.name().ends_with(':') || !line.literal(" This client was evicted by ")) return false;
  const std::string_view target = line.name();
  if (target.empty()) return false;
  tally.add(Severity::warning, std::string(target), "evicted this client");
  return true;
}

Result check_disk_lustre(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  LogTally tally;
  for (const KernelLine& line : log.lines) {
    if (read_eviction(Scan(line.text), tally)) evidence.mark_judged(line);
  }
  std::vector<Finding> findings = tally.findings();
  std::optional<std::string> health;
  for (const char* file : {"/sys/fs/lustre/health_check", "/proc/fs/lustre/health_check"}) {
    if (!health) health = evidence.root().read(file, 4096);
  }
  if (health && *health != "healthy") {
    findings.push_back({.severity = Severity::warning,
                        .entity = "health_check",
                        .message = "the Lustre client says: " + printable(*health)});
  }
  if (!health && !log.error.empty()) return skipped("neither the kernel's log nor Lustre's health_check can be read");
  return judged(std::move(findings), health ? "health_check says healthy" : "no Lustre client");
}

}  // namespace

extern constinit const Check kDiskLustre = {
    .code = "disk.lustre",
    .lane = Lane::kernel,
    .summary = "a Lustre client that is unhealthy or was evicted",
    .needs = "/dev/kmsg or Lustre",
    .blame = Blame::storage,
    .explain =
        "Reads health_check of the Lustre client, and evictions in the kernel log. An eviction makes pending I/O fail. "
        "If several clients are evicted at once, suspect the server or the network.",
    .remedy = "Look for the network error before the eviction; reboot the node if health_check says LBUG.",
    .run = check_disk_lustre};

}  // namespace ms::health
