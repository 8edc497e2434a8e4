// The check gpu.persist (check.h): GPUs whose driver unloads between jobs.
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"

namespace ms::health {
namespace {

Result check_gpu_persist(Evidence& evidence) {
  return each_gpu(
      evidence, "persistence mode", [](const Gpu& gpu) { return gpu.persistent.has_value(); },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        if (!*gpu.persistent) findings.push_back(about(gpu, Severity::warning, "persistence mode is off"));
      });
}

}  // namespace

extern constinit const Check kGpuPersist = {
    .code = "gpu.persist",
    .lane = Lane::gpu,
    .summary = "GPUs whose driver state is unloaded between jobs",
    .needs = kNvml,
    .explain =
        "Without persistence mode the driver releases an unused GPU: the next job waits for seconds to initialize it, "
        "and memory error counters restart at zero, which hides their growth. Not yet seen on real hardware, so it "
        "only warns.",
    .remedy = "Enable nvidia-persistenced, or nvidia-smi -pm 1.",
    .run = check_gpu_persist};

}  // namespace ms::health
