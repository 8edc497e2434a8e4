// The check gpu.pcie (check.h): the width of GPUs' PCIe links.
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"

namespace ms::health {
namespace {

Result check_gpu_pcie(Evidence& evidence) {
  return each_gpu(
      evidence, "PCIe width", [](const Gpu& gpu) { return gpu.pcie_width && gpu.pcie_width_max; },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        const int width = *gpu.pcie_width, most = *gpu.pcie_width_max;
        if (width >= most) return;
        findings.push_back(about(gpu, 2 * width <= most ? Severity::critical : Severity::warning,
                                 fmt::format("its PCIe link runs with {} of {} lanes", width, most), width, most,
                                 "lanes"));
      });
}

}  // namespace

extern constinit const Check kGpuPcie = {
    .code = "gpu.pcie",
    .lane = Lane::gpu,
    .summary = "a PCIe link that lost lanes",
    .needs = kNvml,
    .blame = Blame::gpu,
    .explain =
        "Compares the width of the link with the maximum of GPU and slot. Half of the lanes or fewer is critical: "
        "copies to the GPU take twice as long, and all other GPUs of the job wait. The link speed is ignored, because "
        "idle GPUs lower it.",
    .remedy =
        "When no job runs, power-cycle the node, which retrains the link. If lanes are still missing, reseat the GPU "
        "or its riser, then try another slot to find out which part is bad.",
    .run = check_gpu_pcie};

}  // namespace ms::health
