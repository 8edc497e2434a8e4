// The check gpu.count (check.h): all GPUs are there.
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"

namespace ms::health {
namespace {

Result check_gpu_count(Evidence& evidence) {
  const Expected expected = expected_gpus(evidence);
  if (expected.count == 0) return skipped("no NVIDIA GPU is expected here");
  const GpuSnapshot& gpus = evidence.gpus();
  // Without the library no GPU was asked: a wrong path in the policy must not look like a node without GPUs.
  if (!gpus.library_found) return skipped(gpus.error);
  const std::size_t count = gpus.gpus.size();
  if (count >= expected.count)
    return passed(fmt::format("{}, {} expected by {}", plural(count, "GPU"), expected.count, expected.by));
  return judged({about("node", Severity::critical,
                       fmt::format("{} of {} (by {}) answer{}", count, plural(expected.count, "GPU"), expected.by,
                                   gpus.error.empty() ? "" : ": " + gpus.error),
                       count, expected.count, "GPUs")});
}

}  // namespace

extern constinit const Check kGpuCount = {
    .code = "gpu.count",
    .lane = Lane::gpu,
    .summary = "GPUs that are missing",
    .needs = kNvml,
    .explain =
        "Compares the number of GPUs that the driver reports with expect.gpus; if that is not set, with the "
        "/dev/nvidiaN devices of this node in gres.conf; and otherwise, or if gres.conf has AutoDetect and lists "
        "fewer, with the NVIDIA display controllers on the PCI bus, without those that NVreg_ExcludedGpus excludes. "
        "Fewer GPUs are critical, because Slurm would "
        "allocate a missing GPU. A GPU lost at run time still counts "
        "here and is reported by gpu.lost. Without the library nothing is compared; see gpu.driver.",
    .remedy =
        "Look for the missing GPU with lspci and in the kernel log; reboot the node; if it is still missing, reseat "
        "the GPU.",
    .run = check_gpu_count};

}  // namespace ms::health
