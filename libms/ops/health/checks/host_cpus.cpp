// The check host.cpus (check.h): processors that are missing or offline.
#include <fmt/format.h>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

// How many processors "0-3,8" names; nullopt: it is no such list.
std::optional<std::int64_t> count_cpus(std::string_view list) {
  std::int64_t count = 0;
  for (const std::string& part : split(list, ',')) {
    Scan scan(part);
    const auto first = scan.number();
    const auto last = scan.literal("-") ? scan.number() : first;
    if (!first || !last || *last < *first || !scan.at_end()) return std::nullopt;
    count += static_cast<std::int64_t>(*last - *first + 1);
  }
  return count;
}

std::optional<std::int64_t> cpus(const Sysroot& root, std::string_view which) {
  const auto text = root.read(fmt::format("/sys/devices/system/cpu/{}", which), 4096);
  return text ? count_cpus(trim(*text)) : std::nullopt;
}

Result check_host_cpus(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  const auto online = cpus(root, "online");
  const auto present = cpus(root, "present");
  if (!online || !present) return skipped("/sys/devices/system/cpu does not say which processors there are");
  const std::int64_t expected = evidence.policy().expect.cpus;
  const std::string threads = root.read("/sys/devices/system/cpu/smt/control", 64).value_or("");
  const bool threads_off = threads == "off" || threads == "forceoff";
  std::vector<Finding> findings;
  const auto fewer = [&](Severity severity, std::int64_t count, std::int64_t of, std::string_view what) {
    findings.push_back(
        about("processors", severity, fmt::format("{} of {} {}", count, of, what), count, of, "processors"));
  };
  if (expected > 0 && *present < expected) {
    // The firmware hides processors that are not even present; a user cannot do that.
    fewer(Severity::critical, *present, expected, "expected processors are present");
  } else if (expected > 0 && *online < expected) {
    fewer(Severity::warning, *online, expected, "expected processors are online");
  } else if (expected <= 0 && !threads_off && *online < *present) {
    fewer(Severity::warning, *online, *present, "present processors are online");
  }
  return judged(std::move(findings), fmt::format("{} online", *online));
}

}  // namespace

extern constinit const Check kHostCpus = {
    .code = "host.cpus",
    .summary = "CPUs that are missing or offline",
    .needs = "/sys/devices/system/cpu",
    .explain =
        "Compares the CPUs that are present and online with expect.cpus; if that is not set, compares the online CPUs "
        "with those present. Offline CPUs are a warning, since an administrator or a monitoring daemon may have "
        "disabled them. Hyper-threads disabled by smt/control are not counted as missing. Fewer present CPUs than "
        "expected are critical: the firmware hides them.",
    .remedy = "Enable them in /sys/devices/system/cpu/cpuN/online, or check the firmware settings.",
    .run = check_host_cpus};

}  // namespace ms::health
