// The check host.thermal (check.h): processors that were slowed down because they were too hot.
#include <fmt/format.h>

#include "health/checks/check.h"
#include "health/evidence/growth.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr double kEventsPerHour = 10;

// "mce: CPU12: Package temperature/speed above threshold, cpu clock throttled (total events = 1)"
bool read_throttling(Scan line, LogTally& tally) {
  line.literal("mce: ");
  if (!line.literal("CPU") || !line.number() || !line.literal(": ")) return false;
  const bool package = line.literal("Package ");
  if (!package && !line.literal("Core ")) return false;
  line.literal("temperature");
  line.literal("/speed");
  if (!line.literal(" above threshold, cpu clock throttled")) return false;
  tally.add(Severity::warning, package ? "processor package" : "processor core", "was throttled, too hot");
  return true;
}

// "thermal thermal_zone0: critical temperature reached (125 C), shutting down", and of newer kernels "thermal
// thermal_zone0: acpitz: critical temperature reached, shutting down".
bool read_critical(Scan line, LogTally& tally) {
  if (!line.literal("thermal ")) return false;
  std::string_view zone = line.name();
  if (!zone.starts_with("thermal_zone") || !zone.ends_with(':')) return false;
  zone.remove_suffix(1);
  if (line.rest().find(" critical temperature reached") == std::string_view::npos) return false;
  if (!line.rest().ends_with(", shutting down")) return false;
  tally.add(Severity::warning, std::string(zone), "reached its critical temperature");
  return true;
}

Result check_host_thermal(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  LogTally tally;
  for (const KernelLine& line : log.lines) {
    if (read_throttling(Scan(line.text), tally) || read_critical(Scan(line.text), tally)) evidence.mark_judged(line);
  }
  std::vector<Finding> findings = tally.findings();
  std::int64_t events = 0, counters = 0;
  constexpr const char* kCpus = "/sys/devices/system/cpu";
  for (const std::string& name : evidence.root().list(kCpus)) {
    const auto count = evidence.root().read_int(fmt::format("{}/{}/thermal_throttle/core_throttle_count", kCpus, name));
    if (!count) continue;
    ++counters;
    events += *count;
  }
  if (!log.error.empty() && counters == 0) return skipped("neither the kernel's log nor thermal_throttle can be read");
  Counters keep;
  const auto rate = growth_per_window(evidence, "host.thermal", static_cast<double>(events), kHour_s, keep);
  if (rate && *rate > kEventsPerHour) {
    findings.push_back(about("processors", Severity::warning,
                             fmt::format("were throttled {:.0f} times in an hour, too hot", *rate), *rate,
                             kEventsPerHour, "events/h"));
  }
  Result result = judged(std::move(findings));
  result.counters = std::move(keep);
  return result;
}

}  // namespace

extern constinit const Check kHostThermal = {
    .code = "host.thermal",
    .lane = Lane::kernel,
    .summary = "CPUs that were throttled because of heat",
    .needs = "/dev/kmsg or thermal_throttle",
    .explain =
        "Reads kernel messages about throttled CPUs and critical temperatures, and the thermal_throttle counters of "
        "every CPU: more than ten new "
        "events per hour are a warning. One throttled socket slows the whole job.",
    .remedy =
        "Look at fans, air flow and the inlet temperature (ipmitool sensor); clean or reseat the heat sink of that "
        "socket.",
    .run = check_host_thermal};

}  // namespace ms::health
