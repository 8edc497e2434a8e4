// The check host.boots (check.h): a node that boots again and again.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/growth.h"

namespace ms::health {
namespace {

// The counters kept are the time of the boot, the number of boots since the first look, and that number a day ago.
constexpr const char* kBootTime = "host.boots time";
constexpr const char* kBootTotal = "host.boots total";
constexpr const char* kBootWindow = "host.boots window";
constexpr double kSameBoot_s = 120;  // a clock that is set moves the time of the boot
constexpr double kMostBoots = 3;     // a day: an update takes one, and perhaps a second

// "btime 1764172800"
std::optional<double> boot_time_s(const Sysroot& root) {
  constexpr std::string_view kKey = "btime ";
  for (const std::string& line : split(root.read("/proc/stat").value_or(""), '\n')) {
    if (line.starts_with(kKey)) return std::strtod(line.c_str() + kKey.size(), nullptr);
  }
  return std::nullopt;
}

Result check_host_boots(Evidence& evidence) {
  const std::optional<double> booted_s = boot_time_s(evidence.root());
  if (!booted_s) return skipped("/proc/stat does not say when the node booted");
  const std::optional<Counter> last = evidence.before(kBootTime), total = evidence.before(kBootTotal);
  const bool again = last && std::abs(last->value - *booted_s) > kSameBoot_s;
  const double boots = (total ? total->value : 0) + (again ? 1 : 0);
  Counters keep{{kBootTime, {*booted_s, evidence.now_wall_s()}}, {kBootTotal, {boots, evidence.now_wall_s()}}};
  const auto per_day = growth_per_window(evidence, kBootWindow, boots, kDay_s, keep);
  std::vector<Finding> findings;
  if (per_day && *per_day >= kMostBoots) {
    findings.push_back(about("node", Severity::warning, fmt::format("booted {:.0f} times in a day", *per_day), *per_day,
                             kMostBoots, "boots/d"));
  }
  // Only prologs keep what the next run compares with; without it this check cannot find anything.
  Result result = judged(std::move(findings),
                         fmt::format("up for {}{}", format_duration(std::max(0.0, evidence.now_wall_s() - *booted_s)),
                                     last ? "" : "; no prolog kept an earlier boot to compare with"));
  result.counters = std::move(keep);
  return result;
}

}  // namespace

extern constinit const Check kHostBoots = {
    .code = "host.boots",
    .summary = "a node that reboots repeatedly",
    .needs = "/proc/stat",
    .explain =
        "Counts reboots since earlier runs: three in a day are a warning. A node that crashes between jobs looks "
        "healthy whenever it is checked, so the check uses the state of earlier runs. Only the prolog stores this "
        "state; ms-diag run by root only reads it. The note reports the uptime, and whether a state is stored.",
    .remedy =
        "last -x reboot and the event log of the BMC (host.bmc) show whether someone rebooted it; otherwise suspect "
        "power, memory and watchdogs.",
    .run = check_host_boots};

}  // namespace ms::health
