// The check gpu.inforom (check.h): GPUs whose InfoROM is corrupt.
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"

namespace ms::health {
namespace {

Result check_gpu_inforom(Evidence& evidence) {
  return each_gpu(
      evidence, "InfoROM's state", [](const Gpu& gpu) { return gpu.inforom_valid.has_value(); },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        if (!*gpu.inforom_valid) findings.push_back(about(gpu, Severity::warning, "its InfoROM is corrupt"));
      });
}

}  // namespace

extern constinit const Check kGpuInforom = {
    .code = "gpu.inforom",
    .lane = Lane::gpu,
    .summary = "GPUs with a corrupt InfoROM",
    .needs = kNvml,
    .blame = Blame::gpu,
    .explain =
        "The InfoROM stores the configuration of a GPU and its memory errors: remapped rows and retired pages. The "
        "driver verifies its checksums. A GPU with a corrupt InfoROM may use bad memory again. Not yet seen on real "
        "hardware, so it only warns.",
    .remedy = "Have the GPU replaced: only its vendor can rewrite the InfoROM.",
    .run = check_gpu_inforom};

}  // namespace ms::health
