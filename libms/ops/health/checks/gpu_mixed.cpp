// The check gpu.mixed (check.h): GPUs that differ from the others of the node.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "health/checks/gpu_common.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

// A trait that the GPUs of a node have in common. `of` is empty where the GPU does not say; `advice` is for the GPUs
// that differ, as "gpu 1", with the number for nvidia-smi -i, and the value of the others.
struct Trait {
  std::string_view name;
  std::string (*of)(const Gpu& gpu);
  std::string (*advice)(const std::string& numbers, const std::string& usual);
};

std::string replace_it(const std::string&, const std::string& usual) {
  return fmt::format("Have it replaced by one like the others ({}).", usual);
}

constexpr Trait kTraits[] = {
    {"model", [](const Gpu& gpu) { return printable(gpu.name); }, replace_it},
    {"memory",
     [](const Gpu& gpu) {
       return gpu.memory_total_bytes ? format_size(static_cast<double>(*gpu.memory_total_bytes)) : "";
     },
     replace_it},
    {"VBIOS", [](const Gpu& gpu) { return printable(gpu.vbios); },
     [](const std::string&, const std::string& usual) {
       return fmt::format("Bring its VBIOS to {} with the machine vendor's firmware tool.", usual);
     }},
    {"highest clock",
     [](const Gpu& gpu) { return gpu.clock_max_mhz ? fmt::format("{:.0f} MHz", *gpu.clock_max_mhz) : ""; },
     [](const std::string& numbers, const std::string& usual) {
       return fmt::format("nvidia-smi -i {} -rgc takes back a clock that was set; {} is what the others have.", numbers,
                          usual);
     }},
    {"power limit", [](const Gpu& gpu) { return gpu.power_limit_w ? fmt::format("{:.0f} W", *gpu.power_limit_w) : ""; },
     [](const std::string& numbers, const std::string& usual) {
       return fmt::format("nvidia-smi -i {} -pl {} sets its power limit, until the node boots.", numbers,
                          usual.substr(0, usual.find(' ')));
     }}};

struct Groups {
  std::map<std::string, std::vector<int>> gpus;  // by value
  std::size_t told = 0;
};

Groups groups_of(const GpuSnapshot& snapshot, const Trait& trait) {
  Groups groups;
  for (const Gpu& gpu : snapshot.gpus) {
    const std::string value = trait.of(gpu);
    if (value.empty()) continue;
    groups.gpus[value].push_back(gpu.index);
    ++groups.told;
  }
  return groups;
}

// Without a majority it is not known which GPU is the odd one.
Finding no_majority(const Trait& trait, const Groups& groups) {
  std::vector<std::string> values;
  for (const auto& [value, gpus] : groups.gpus) {
    values.push_back(fmt::format("gpu {} {} {}", fmt::join(gpus, ", "), gpus.size() == 1 ? "has" : "have", value));
  }
  return {.severity = Severity::warning,
          .entity = "gpus",
          .message = fmt::format("differ in {}: {}; no majority: compare with another node", trait.name,
                                 fmt::join(values, "; ")),
          .remedy = fmt::format("nvidia-smi -q on another node with such GPUs shows the right {0} (VALUE). On each GPU "
                                "of this node that differs from it (number N): {1}",
                                trait.name, trait.advice("N", "VALUE"))};
}

Result check_gpu_mixed(Evidence& evidence) {
  if (std::optional<Result> nothing = nothing_to_ask(evidence)) return *nothing;
  const GpuSnapshot& snapshot = evidence.gpus();
  if (groups_of(snapshot, kTraits[0]).told == 0) return skipped("no GPU says of what model it is");
  std::vector<Finding> findings;
  std::vector<std::string> common;
  for (const Trait& trait : kTraits) {
    const Groups groups = groups_of(snapshot, trait);
    if (groups.told == 0) continue;
    const auto usual = std::ranges::max_element(groups.gpus, {}, [](const auto& group) { return group.second.size(); });
    if (groups.gpus.size() == 1) common.push_back(usual->first);
    if (2 * usual->second.size() <= groups.told && groups.gpus.size() > 1) {
      findings.push_back(no_majority(trait, groups));
      continue;
    }
    for (const auto& [value, gpus] : groups.gpus) {
      if (value == usual->first) continue;
      findings.push_back(
          {.severity = Severity::warning,
           .entity = fmt::format("gpu {}", fmt::join(gpus, ", ")),
           .message = fmt::format("its {} is {}, that of the others {}", trait.name, value, usual->first),
           .remedy = trait.advice(fmt::format("{}", fmt::join(gpus, ",")), usual->first)});
    }
  }
  return judged(std::move(findings), fmt::format("{}", fmt::join(common, ", ")));
}

}  // namespace

extern constinit const Check kGpuMixed = {
    .code = "gpu.mixed",
    .lane = Lane::gpu,
    .summary = "GPUs that differ from the others of the node",
    .needs = kNvml,
    .blame = Blame::gpu,
    .explain =
        "Compares the model, memory, VBIOS, maximum clock and power limit of all GPUs of the node. A different GPU "
        "after a replacement, or one with a power cap, delays every step or lacks memory for its shard. If no value "
        "has a majority, the finding reports that. Not yet seen on real hardware, so it only warns.",
    .remedy = "Set clock, power limit and VBIOS as on the others, or have the GPU replaced by one of the same model.",
    .run = check_gpu_mixed};

}  // namespace ms::health
