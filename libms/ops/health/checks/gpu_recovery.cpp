// The check gpu.recovery (check.h): the recovery action that the driver asks for.
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"
#include "health/evidence/xid.h"

namespace ms::health {
namespace {

Result check_gpu_recovery(Evidence& evidence) {
  return each_gpu(
      evidence, "recovery action (drivers from 570 on do)",
      [](const Gpu& gpu) { return gpu.recovery_action.has_value(); },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        if (*gpu.recovery_action == RecoveryAction::none) return;
        const RecoveryAdvice advice = advice_for(*gpu.recovery_action);
        findings.push_back(about(gpu, advice.severity, fmt::format("the driver asks for {}", advice.words)));
      });
}

}  // namespace

extern constinit const Check kGpuRecovery = {
    .code = "gpu.recovery",
    .lane = Lane::gpu,
    .summary = "the recovery that the driver asks for",
    .needs = "NVML of driver 570 or later",
    .blame = Blame::gpu,
    .explain =
        "Drivers from 570 on say themselves what a GPU needs: nothing, a reset, a reboot of the node, an end of "
        "peer-to-peer traffic, or that and a reset. Everything but the end of peer-to-peer traffic alone, which is "
        "a warning, is critical. Older drivers do not say; the check is then skipped.",
    .remedy = "Do what the driver asks for when no job uses the GPU.",
    .run = check_gpu_recovery};

}  // namespace ms::health
