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
    return judged({about("clock source", Severity::warning, fmt::format("is {}: reading the time is slow", slow))});
  }
  return passed(printable(*source));
}

}  // namespace

extern constinit const Check kHostTimer = {
    .code = "host.timer",
    .summary = "a slow clock source",
    .needs = "/sys/devices/system/clocksource",
    .explain =
        "Reads the clock source of the kernel. hpet, acpi_pm and jiffies mean that the kernel gave up the CPU's time "
        "stamp counters (TSC), usually because they drifted apart. Reading the time then takes microseconds, and every "
        "framework and NCCL do so constantly.",
    .remedy = "Look in the kernel log for 'Marking clocksource tsc as unstable'; update the BIOS, or reboot the node.",
    .run = check_host_timer};

}  // namespace ms::health
