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
    .summary = "NVLinks with errors",
    .needs = kNvml,
    .blame = Blame::gpu,
    .explain =
        "Sums replays, recoveries, CRC and ECC errors of all NVLinks of a GPU since an earlier run, per hour. More "
        "than limits.link_errors_per_hour is a warning. A link with retransmissions is slow long before it fails. Not "
        "yet seen on real hardware, so it only warns.",
    .remedy =
        "Look at nvidia-smi nvlink -e; reset the GPUs. If the errors continue, have the board or its bridge reseated.",
    .run = check_gpu_nverrors};

}  // namespace ms::health
