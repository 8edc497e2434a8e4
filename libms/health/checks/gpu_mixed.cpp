// The check gpu.mixed (check.h): GPUs that differ from the others of the node.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "health/checks/gpu_common.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

Result check_gpu_mixed(Evidence& evidence) {
  if (std::optional<Result> nothing = nothing_to_ask(evidence)) return *nothing;
  const GpuSnapshot& snapshot = evidence.gpus();
  std::map<std::string, std::vector<int>> kinds;
  for (const Gpu& gpu : snapshot.gpus) {
    if (gpu.name.empty() || !gpu.memory_total_bytes) continue;
    const double bytes = static_cast<double>(*gpu.memory_total_bytes);
    kinds[fmt::format("{} with {}", printable(gpu.name), format_size(bytes))].push_back(gpu.index);
  }
  if (kinds.empty()) return skipped("no GPU says of what model it is");
  const auto usual = std::max_element(kinds.begin(), kinds.end(),
                                      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::vector<Finding> findings;
  const bool tie = 2 * usual->second.size() <= snapshot.gpus.size();  // then nobody knows which is the odd one
  for (const auto& [kind, gpus] : kinds) {
    if (kind == usual->first) continue;
    findings.push_back({.severity = Severity::warning,
                        .entity = tie ? "gpus" : fmt::format("gpu {}", fmt::join(gpus, ", ")),
                        .message = tie ? fmt::format("some are {}, some {}", kind, usual->first)
                                       : fmt::format("is {}, the others are {}", kind, usual->first)});
  }
  return judged(std::move(findings), usual->first);
}

}  // namespace

extern constinit const Check kGpuMixed = {
    .code = "gpu.mixed",
    .lane = Lane::gpu,
    .summary = "GPUs that differ from the others of the node",
    .needs = kNvml,
    .explain =
        "Compares the model and the memory of all GPUs of the node. A different one after a replacement makes "
        "every step wait for it, or has no room for its shard. Never seen on hardware here, so it warns and "
        "never drains.",
    .remedy = "Have the GPU replaced by one of the model of the others.",
    .run = check_gpu_mixed};

}  // namespace ms::health
