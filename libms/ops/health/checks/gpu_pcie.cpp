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
        "Compares the width of the link with the most that GPU and slot can do together. Half of the lanes or "
        "fewer is critical: copies to the GPU take twice as long, and every other GPU of a job waits. The link's "
        "speed is not looked at, because GPUs lower it when they are idle.",
    .remedy =
        "When no job runs, power the node off and on: that trains the link anew. If lanes are still missing, somebody "
        "must go to the node: reseat the GPU or its riser, then try another slot to tell which of them is bad.",
    .run = check_gpu_pcie};

}  // namespace ms::health
