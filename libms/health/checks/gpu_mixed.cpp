// The check gpu.mixed (check.h): GPUs that differ from the others of the node.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "health/checks/gpu_common.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

std::string kind_of(const Gpu& gpu) {
  std::string kind = fmt::format("{} with {}", printable(gpu.name),
                                 format_size(static_cast<double>(gpu.memory_total_bytes.value_or(0))));
  if (!gpu.vbios.empty()) kind += fmt::format(", VBIOS {}", printable(gpu.vbios));
  if (gpu.clock_max_mhz) kind += fmt::format(", up to {:.0f} MHz", *gpu.clock_max_mhz);
  if (gpu.power_limit_w) kind += fmt::format(", {:.0f} W", *gpu.power_limit_w);
  return kind;
}

Result check_gpu_mixed(Evidence& evidence) {
  if (std::optional<Result> nothing = nothing_to_ask(evidence)) return *nothing;
  const GpuSnapshot& snapshot = evidence.gpus();
  std::map<std::string, std::vector<int>> kinds;
  for (const Gpu& gpu : snapshot.gpus) {
    if (gpu.name.empty() || !gpu.memory_total_bytes) continue;
    kinds[kind_of(gpu)].push_back(gpu.index);
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
        "Compares the model, the memory, the VBIOS, the highest clock and the power limit of all GPUs of the node. A "
        "different one after a replacement, or one that somebody capped, makes every step wait for it, or has no room "
        "for its shard. Never seen on hardware here, so it warns and never drains.",
    .remedy =
        "Set clocks and power limit as on the others (nvidia-smi -q -d CLOCK,POWER), bring its VBIOS to theirs, or "
        "have "
        "it replaced by one of their model.",
    .run = check_gpu_mixed};

}  // namespace ms::health
