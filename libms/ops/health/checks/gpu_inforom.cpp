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
    .summary = "GPUs whose InfoROM is corrupt",
    .needs = kNvml,
    .blame = Blame::gpu,
    .explain =
        "The InfoROM holds the configuration of a GPU and what it remembers of memory errors: rows that are remapped, "
        "pages that are retired. The driver compares its checksums. A corrupt one forgets, so that bad memory comes "
        "back into use. Never seen on hardware here, so it warns and never drains.",
    .remedy = "Have the GPU replaced: its vendor alone can write the InfoROM anew.",
    .run = check_gpu_inforom};

}  // namespace ms::health
