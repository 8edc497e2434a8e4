// The check gpu.thermal (check.h): GPUs that the hardware slows down.
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"
#include "health/evidence/nvml.h"

namespace ms::health {
namespace {

constexpr std::string_view kTooHot =
    "It is above its own limit (nvidia-smi -q -d TEMPERATURE shows that, and the other GPUs). If others are hot, too, "
    "check the node's fans, air flow or coolant; if only this one, its heat sink and how it is seated.";

Result check_gpu_thermal(Evidence& evidence) {
  return each_gpu(
      evidence, "reasons for lower clocks", [](const Gpu& gpu) { return gpu.clocks_event_reasons.has_value(); },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        std::vector<std::string> reasons;
        const std::uint64_t bits = *gpu.clocks_event_reasons;
        if (bits & nvml::kHwThermalSlowdown) {
          reasons.push_back(gpu.temperature_c ? fmt::format("it is too hot, {:.0f} C", *gpu.temperature_c)
                                              : "it is too hot");
        }
        if (bits & nvml::kHwPowerBrakeSlowdown) reasons.push_back("the power brake of the machine is asserted");
        if (reasons.empty() && bits & nvml::kHwSlowdown) reasons.push_back("the hardware protects itself");
        if (reasons.empty()) return;
        findings.push_back(about(gpu, Severity::warning, fmt::format("slowed down: {}", fmt::join(reasons, ", "))));
        if (bits & nvml::kHwThermalSlowdown) findings.back().remedy = kTooHot;
        findings.back().measured = gpu.temperature_c;
        if (gpu.temperature_c) findings.back().unit = "C";
      });
}

}  // namespace

extern constinit const Check kGpuThermal = {
    .code = "gpu.thermal",
    .lane = Lane::gpu,
    .summary = "a GPU that the hardware slows down",
    .needs = kNvml,
    .blame = Blame::gpu,
    .explain =
        "Reads the reasons for low clocks. Idleness, a power cap and fixed clocks are normal. A hardware slowdown "
        "means that the GPU is too hot, or that the power supply triggered the power brake. The GPU then runs at half "
        "of its clock or less and slows the whole job. The check only warns, because it sees only the current state, "
        "which may result from a job that just ended.",
    .remedy =
        "If it is too hot, check fans, air flow or coolant; else the power supplies (ipmitool sdr type \"Power "
        "Supply\").",
    .run = check_gpu_thermal};

}  // namespace ms::health
