// The check host.memory (check.h): memory of the node that is missing or was taken out of use.
#include <fmt/format.h>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr double kKiBPerMiB = 1024;
// Without an expectation, installed memory is compared with usable memory: what the kernel keeps for itself (page
// tables, a crash kernel) is no loss.
constexpr double kKernelShare_percent = 5;

// A value of /proc/meminfo in MiB.
std::optional<double> meminfo_mib(std::string_view text, std::string_view key) {
  for (const std::string& line : split(text, '\n')) {
    Scan scan(line);
    if (!scan.literal(key) || !scan.literal(":")) continue;
    scan.blanks();
    if (const auto kib = scan.number()) return static_cast<double>(*kib) / kKiBPerMiB;
  }
  return std::nullopt;
}

// Returns the installed memory that the memory controllers (EDAC) report; 0: they report none.
double installed_mib(const Sysroot& root) {
  double total = 0;
  for (const std::string& name : root.list("/sys/devices/system/edac/mc")) {
    const auto size = root.read_int(fmt::format("/sys/devices/system/edac/mc/{}/size_mb", name));
    if (name.starts_with("mc") && size) total += static_cast<double>(*size);
  }
  return total;
}

Result check_host_memory(Evidence& evidence) {
  const auto text = evidence.root().read("/proc/meminfo");
  const auto usable_mib = text ? meminfo_mib(*text, "MemTotal") : std::nullopt;
  if (!usable_mib) return skipped("/proc/meminfo does not say how much memory there is");
  std::vector<Finding> findings;
  const auto poisoned_mib = meminfo_mib(*text, "HardwareCorrupted");
  if (poisoned_mib && *poisoned_mib > 0) {
    findings.push_back(
        about("memory", Severity::warning,
              fmt::format("{:.0f} KiB were taken out of use after memory errors", *poisoned_mib * kKiBPerMiB),
              *poisoned_mib, 0.0, "MiB"));
  }
  const double limit_percent = evidence.policy().limits.memory_missing_percent;
  const bool is_expected = evidence.policy().expect.memory_mib > 0;
  const double wanted_mib = is_expected ? static_cast<double>(evidence.policy().expect.memory_mib)
                                        : installed_mib(evidence.root()) * (1 - kKernelShare_percent / 100);
  if (wanted_mib <= 0 && findings.empty()) {
    return skipped("expect.memory_mib is not set, and the memory controllers do not say what is installed");
  }
  if (wanted_mib > 0 && *usable_mib < wanted_mib * (1 - limit_percent / 100)) {
    findings.push_back(about("memory", is_expected ? Severity::critical : Severity::warning,
                             fmt::format("{:.0f} MiB are usable of {:.0f} MiB that {}", *usable_mib, wanted_mib,
                                         is_expected ? "are expected" : "should be, by what is installed"),
                             *usable_mib, wanted_mib, "MiB"));
  }
  return judged(std::move(findings), fmt::format("{:.0f} MiB", *usable_mib));
}

}  // namespace

extern constinit const Check kHostMemory = {
    .code = "host.memory",
    .summary = "memory that is missing or disabled",
    .needs = "/proc/meminfo",
    .explain =
        "Compares MemTotal with expect.memory_mib. A shortfall of more than limits.memory_missing_percent is critical: "
        "a DIMM is missing. Take the value from MemTotal of a healthy node, not from the data sheet. Without "
        "expect.memory_mib, MemTotal is compared with the size reported by the memory controllers (EDAC), and a "
        "shortfall is only a warning. Pages that the kernel disabled after memory errors (HardwareCorrupted) are also "
        "a warning.",
    .remedy =
        "Look for a DIMM that is missing or disabled by the BIOS: dmidecode -t memory, the event log of the BMC "
        "(ipmitool sel list). Reseat or replace it.",
    .run = check_host_memory};

}  // namespace ms::health
