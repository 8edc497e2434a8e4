// The check gpu.remap (check.h): remapped rows and retired pages of GPUs' memory.
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"

namespace ms::health {
namespace {

Result check_gpu_remap(Evidence& evidence) {
  return each_gpu(
      evidence, "remapped rows or retired pages",
      [](const Gpu& gpu) { return gpu.remap_failed || gpu.remap_pending || gpu.retired_pages_pending; },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        const int rows = gpu.remapped_uncorrectable.value_or(0) + gpu.remapped_correctable.value_or(0);
        if (gpu.remap_failed.value_or(false)) {
          findings.push_back(about(gpu, Severity::critical, fmt::format("a row could not be remapped ({} are)", rows)));
          findings.back().remedy = "Run NVIDIA's field diagnostic: this qualifies the GPU for replacement.";
        }
        if (gpu.remap_pending.value_or(false)) {
          findings.push_back(about(gpu, Severity::warning, fmt::format("a row waits to be remapped ({} are)", rows)));
        }
        if (gpu.retired_pages_pending.value_or(0) > 0) {
          findings.push_back(about(gpu, Severity::warning, "a memory page waits to be retired"));
        }
      });
}

}  // namespace

extern constinit const Check kGpuRemap = {
    .code = "gpu.remap",
    .lane = Lane::gpu,
    .summary = "memory rows that are waiting to be remapped, or cannot be",
    .needs = kNvml,
    .blame = Blame::gpu,
    .explain =
        "From Ampere on, GPUs replace damaged memory rows by spare rows at the next reset; older GPUs retire the page. "
        "Pending replacements are a warning: the driver already keeps programs off the damaged memory, but part of the "
        "memory is missing until the reset. If no spare row is left, it is critical; NVIDIA accepts the failure flag, "
        "confirmed by its field diagnostic, as a reason for replacement.",
    .remedy = "Reset the GPU when no job uses it.",
    .run = check_gpu_remap};

}  // namespace ms::health
