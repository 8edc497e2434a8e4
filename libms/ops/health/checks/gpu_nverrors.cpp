// The check gpu.nverrors (check.h): NVLinks that count errors.
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"
#include "health/evidence/growth.h"

namespace ms::health {
namespace {

Result check_gpu_nverrors(Evidence& evidence) {
  const double limit = evidence.policy().limits.link_errors_per_hour;
  Counters keep;
  Result result = each_gpu(
      evidence, "NVLinks' errors", [](const Gpu& gpu) { return gpu.nvlink_errors.has_value(); },
      [&](const Gpu& gpu, std::vector<Finding>& findings) {
        const auto per_hour = growth_per_window(evidence, "gpu.nverrors " + gpu.uuid,
                                                static_cast<double>(*gpu.nvlink_errors), kHour_s, keep);
        if (!per_hour || *per_hour <= limit) return;
        findings.push_back(about(gpu, Severity::warning, fmt::format("{:.0f} errors an hour on its NVLinks", *per_hour),
                                 *per_hour, limit, "errors/h"));
      });
  result.counters = std::move(keep);
  return result;
}

}  // namespace

extern constinit const Check kGpuNverrors = {
    .code = "gpu.nverrors",
    .lane = Lane::gpu,
    .summary = "NVLinks that count errors",
    .needs = kNvml,
    .blame = Blame::gpu,
    .explain =
        "Adds up the replays, recoveries, CRC and ECC errors of all NVLinks of a GPU, over an hour since an earlier "
        "run; more than limits.link_errors_per_hour is a warning. A link that repeats what it sends is slow long "
        "before it fails. Never seen on hardware here, so it warns and never drains.",
    .remedy = "Look at nvidia-smi nvlink -e; reset the GPUs, and if it goes on have the board or its bridge reseated.",
    .run = check_gpu_nverrors};

}  // namespace ms::health
