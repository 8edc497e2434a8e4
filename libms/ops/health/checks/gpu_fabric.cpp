// The check gpu.fabric (check.h): GPUs that have not joined the fabric of NVSwitches.
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"

namespace ms::health {
namespace {

Result check_gpu_fabric(Evidence& evidence) {
  return each_gpu(
      evidence, "NVSwitch fabric", [](const Gpu& gpu) { return gpu.fabric_ready.has_value(); },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        if (!*gpu.fabric_ready) {
          findings.push_back(about(gpu, Severity::warning, "it has not joined the fabric of NVSwitches"));
        }
      });
}

}  // namespace

extern constinit const Check kGpuFabric = {
    .code = "gpu.fabric",
    .lane = Lane::gpu,
    .summary = "GPUs that have not joined the NVSwitch fabric",
    .needs = kNvml,
    .explain =
        "On machines with NVSwitches the fabric manager registers every GPU. Until then, or if it fails, CUDA cannot "
        "start on the GPU. The driver reports the progress. GPUs without a fabric are ignored. Not yet seen on real "
        "hardware, so it only warns.",
    .remedy = "Look at systemctl status nvidia-fabricmanager and its log, then restart it while no job runs.",
    .run = check_gpu_fabric};

}  // namespace ms::health
