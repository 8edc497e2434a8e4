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
    .summary = "a recovery action requested by the driver",
    .needs = "NVML of driver 570 or later",
    .blame = Blame::gpu,
    .explain =
        "Drivers from 570 on report the recovery action that a GPU needs: none, a reset, a reboot of the node, an end "
        "of peer-to-peer traffic, or that and a reset. An end of peer-to-peer traffic alone is a warning; all other "
        "actions are critical. With older drivers the check is skipped.",
    .remedy = "Perform the action when no job uses the GPU.",
    .run = check_gpu_recovery};

}  // namespace ms::health
