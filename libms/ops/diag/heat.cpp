#include "diag/heat.h"

#include <fmt/format.h>

#include <algorithm>

#include "health/evidence/nvml.h"

namespace ms::diag {
namespace {

constexpr std::size_t kLeastGpus = 3;  // to know what is usual
constexpr double kUsualClock = 0.9;    // of the median

template <class Better>
void keep(std::optional<double>& kept, const std::optional<double>& seen, Better better) {
  if (seen && (!kept || better(*seen, *kept))) kept = seen;
}

std::string told(const GpuHeat& heat) {
  std::string text;
  if (heat.clock_mhz) text += fmt::format(", {:.0f} MHz at least", *heat.clock_mhz);
  if (heat.temperature_c) text += fmt::format(", {:.0f} C at most", *heat.temperature_c);
  if (heat.power_w) text += fmt::format(", {:.0f} W at most", *heat.power_w);
  return text;
}

}  // namespace

CpuHeat cpu_heat(const Sysroot& root, const std::vector<int>& cpus) {
  CpuHeat heat;
  for (const int cpu : cpus) {
    for (const char* file : {"core_throttle_count", "package_throttle_count"}) {
      const auto count = root.read_int(fmt::format("/sys/devices/system/cpu/cpu{}/thermal_throttle/{}", cpu, file));
      if (count) heat.throttles[cpu] += *count;
    }
  }
  return heat;
}

std::vector<Finding> judge_heat(const CpuHeat& before, const CpuHeat& after) {
  std::vector<Finding> findings;
  for (const auto& [cpu, count] : after.throttles) {
    const auto earlier = before.throttles.find(cpu);
    if (earlier == before.throttles.end() || count <= earlier->second) continue;
    const auto times = static_cast<double>(count - earlier->second);
    findings.push_back(about(fmt::format("core {}", cpu), Severity::warning,
                             fmt::format("throttled for heat {} times under load", times), times, 0, "times"));
  }
  return findings;
}

void GpuHeats::look(const health::GpuSnapshot& snapshot) {
  for (const health::Gpu& gpu : snapshot.gpus) {
    GpuHeat& heat = heats_[gpu.index];
    keep(heat.clock_mhz, gpu.clock_mhz, std::less<>());
    keep(heat.temperature_c, gpu.temperature_c, std::greater<>());
    keep(heat.power_w, gpu.power_w, std::greater<>());
    heat.reasons |= gpu.clocks_event_reasons.value_or(0);
  }
}

std::vector<Finding> judge_heat(const std::map<int, GpuHeat>& heats) {
  std::vector<double> clocks;
  for (const auto& [gpu, heat] : heats) {
    if (heat.clock_mhz) clocks.push_back(*heat.clock_mhz);
  }
  double median = 0;
  if (clocks.size() >= kLeastGpus) {
    std::nth_element(clocks.begin(), clocks.begin() + std::ssize(clocks) / 2, clocks.end());
    median = clocks[clocks.size() / 2];
  }
  std::vector<Finding> findings;
  for (const auto& [gpu, heat] : heats) {
    const std::string entity = fmt::format("gpu {}", gpu);
    using namespace health::nvml;
    if ((heat.reasons & (kHwSlowdown | kHwThermalSlowdown | kHwPowerBrakeSlowdown)) != 0) {
      const char* why = (heat.reasons & kHwPowerBrakeSlowdown) != 0 ? "the machine's power brake"
                        : (heat.reasons & kHwThermalSlowdown) != 0  ? "heat"
                                                                    : "the hardware's own protection";
      findings.push_back({.severity = Severity::warning,
                          .entity = entity,
                          .message = fmt::format("slowed down under load by {}{}", why, told(heat)),
                          .measured = heat.temperature_c,
                          .unit = heat.temperature_c ? "C" : ""});
    }
    if (heat.clock_mhz && *heat.clock_mhz < kUsualClock * median) {
      findings.push_back(
          about(entity, Severity::warning,
                fmt::format("slower under load than the others, whose median is {:.0f} MHz{}", median, told(heat)),
                heat.clock_mhz, kUsualClock * median, "MHz"));
    }
  }
  return findings;
}

}  // namespace ms::diag
