// The check gpu.ecc (check.h): memory errors of GPUs, from NVML's volatile ECC counters.
#include "base/text.h"
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"

namespace ms::health {
namespace {

Result check_gpu_ecc(Evidence& evidence) {
  const std::int64_t most = evidence.policy().limits.ecc_correctable;
  return each_gpu(
      evidence, "ECC errors", [](const Gpu& gpu) { return gpu.ecc_uncorrectable || gpu.ecc_correctable; },
      [&](const Gpu& gpu, std::vector<Finding>& findings) {
        if (const std::uint64_t count = gpu.ecc_uncorrectable.value_or(0); count > 0) {
          findings.push_back(about(gpu, Severity::critical,
                                   plural(count, "uncorrectable memory error") + " since the driver was loaded", count,
                                   0, "errors"));
        }
        if (const std::uint64_t count = gpu.ecc_correctable.value_or(0);
            most >= 0 && count > static_cast<std::uint64_t>(most)) {
          findings.push_back(about(gpu, Severity::warning,
                                   plural(count, "corrected memory error") + " since the driver was loaded", count,
                                   static_cast<double>(most), "errors"));
        }
      });
}

}  // namespace

extern constinit const Check kGpuEcc = {
    .code = "gpu.ecc",
    .lane = Lane::gpu,
    .summary = "memory errors of a GPU",
    .needs = kNvml,
    .blame = Blame::gpu,
    .explain =
        "Reads the volatile ECC counters, which start at zero when the driver is loaded or the GPU is reset. An "
        "uncorrectable error is critical: data were lost, the program was ended, and the damaged row is replaced only "
        "by a reset. Corrected errors are normal; more than limits.ecc_correctable are a warning.",
    .remedy = "Reset the GPU (nvidia-smi --gpu-reset) or reboot the node, which remaps the row and clears the counter.",
    .run = check_gpu_ecc};

}  // namespace ms::health
