// The check host.sensors (check.h): sensors that are in alarm.
#include <fmt/format.h>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

// "temp1_crit_alarm", "fan2_fault", "power1_crit_alarm"
bool is_alarm(std::string_view name) {
  Scan scan(name);
  if (!scan.one_of({"temp", "fan", "power"}) || !scan.number()) return false;
  return scan.one_of({"_crit_alarm", "_emergency_alarm", "_fault", "_min_alarm"}) && scan.at_end();
}

Result check_host_sensors(Evidence& evidence) {
  constexpr const char* kSensors = "/sys/class/hwmon";
  const Sysroot& root = evidence.root();
  std::vector<Finding> findings;
  std::size_t alarms = 0;
  for (const std::string& device : root.list(kSensors)) {
    const std::string directory = fmt::format("{}/{}", kSensors, device);
    for (const std::string& name : root.list(directory)) {
      if (!is_alarm(name)) continue;
      const auto raised = root.read_int(fmt::format("{}/{}", directory, name));
      alarms += raised ? 1 : 0;
      if (!raised || *raised == 0) continue;
      const std::string sensor = name.substr(0, name.find('_'));
      const std::string chip = root.read(directory + "/name", 64).value_or(device);
      const std::string label = root.read(fmt::format("{}/{}_label", directory, sensor), 64).value_or(sensor);
      findings.push_back(about(printable(chip) + " " + printable(label), Severity::warning,
                               fmt::format("{} is raised", name.substr(name.find('_') + 1))));
    }
  }
  if (alarms == 0) return skipped("no sensor here has an alarm that could be read");
  return judged(std::move(findings), plural(alarms, "alarm") + " watched");
}

}  // namespace

extern constinit const Check kHostSensors = {
    .code = "host.sensors",
    .summary = "sensors that are in alarm",
    .needs = "/sys/class/hwmon",
    .explain =
        "Reads the alarms and faults of the kernel's sensor drivers: critical temperatures, fans and power supplies. "
        "Voltage alarms are ignored, since many boards have arbitrary limits.",
    .remedy = "Check that fan, supply or inlet (ipmitool sensor, ipmitool sel list), and replace the failed part.",
    .run = check_host_sensors};

}  // namespace ms::health
