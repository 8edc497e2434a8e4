// The check host.timer (check.h): a slow clock source.
#include <fmt/format.h>

#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

Result check_host_timer(Evidence& evidence) {
  const auto source = evidence.root().read("/sys/devices/system/clocksource/clocksource0/current_clocksource", 64);
  if (!source) return skipped("the kernel does not say which clock source it uses");
  for (const std::string_view slow : {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"}) {
    if (*source != slow) continue;
    return judged({{.severity = Severity::warning,
                    .entity = "clock source",
                    .message = fmt::format("is {}: reading the time is slow", slow)}});
  }
  return passed(printable(*source));
}

}  // namespace

extern constinit const Check kHostTimer = {
    .code = "host.timer",
    .lane = Lane::files,
    .summary = "a slow clock source",
    .needs = "/sys/devices/system/clocksource",
    .explain =
        "Reads which clock source the kernel uses. hpet, acpi_pm and jiffies mean that it gave up the "
        "processors' own counters (TSC), mostly because they drifted apart: reading the time then takes "
        "microseconds, which every framework and NCCL do all the time.",
    .remedy =
        "Look in the kernel's log for 'Marking clocksource tsc as unstable'; update the BIOS, or reboot the node.",
    .run = check_host_timer};

}  // namespace ms::health
