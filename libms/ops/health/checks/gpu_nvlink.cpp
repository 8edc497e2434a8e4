// The check gpu.nvlink (check.h): the NVLinks of GPUs.
#include <algorithm>

#include "health/checks/check.h"
#include "health/checks/gpu_common.h"

namespace ms::health {
namespace {

Result check_gpu_nvlink(Evidence& evidence) {
  const std::int64_t wanted = evidence.policy().expect.nvlinks_per_gpu;
  int best = 0;  // of this node's GPUs
  for (const Gpu& gpu : evidence.gpus().gpus) best = std::max(best, gpu.nvlinks_active.value_or(0));
  if (wanted < 0 && best == 0 && !nothing_to_ask(evidence)) {
    return skipped("no NVLink is active on any GPU and expect.nvlinks_per_gpu does not ask for them");
  }
  return each_gpu(
      evidence, "NVLinks", [&](const Gpu& gpu) { return gpu.nvlinks_active && gpu.nvlinks_total; },
      [&](const Gpu& gpu, std::vector<Finding>& findings) {
        const int active = *gpu.nvlinks_active, total = *gpu.nvlinks_total;
        const std::int64_t limit = wanted >= 0 ? wanted : total;
        if (active >= limit) return;
        // Boards exist that use only some of their links, all alike: without an expectation that is worth a warning.
        const bool alike = wanted < 0 && active == best;
        findings.push_back(
            about(gpu, alike ? Severity::warning : Severity::critical,
                  fmt::format("{} of {} NVLinks are active{}", active, limit, alike ? ", as on the other GPUs" : ""),
                  active, limit, "links"));
        if (alike) findings.back().remedy = "If this board has no more, set expect.nvlinks_per_gpu.";
      });
}

}  // namespace

extern constinit const Check kGpuNvlink = {
    .code = "gpu.nvlink",
    .lane = Lane::gpu,
    .summary = "NVLinks that are down",
    .needs = kNvml,
    .blame = Blame::gpu,
    .explain =
        "Counts the active NVLinks of every GPU. Fewer than expect.nvlinks_per_gpu is critical. If that is not set, a "
        "GPU with inactive links is critical if another GPU of the node has more active links. If all GPUs have the "
        "same number, it is a warning, because some boards use only part of their links. If no link is active on any "
        "GPU, there may be no bridge, and the check is skipped. Set expect.nvlinks_per_gpu on machines with NVSwitch, "
        "where all links are down if the fabric manager does not run.",
    .remedy = "Check that nvidia-fabricmanager runs; then reset the GPUs, and look at nvidia-smi nvlink -e.",
    .run = check_gpu_nvlink};

}  // namespace ms::health
