// Helpers that the checks of NVIDIA GPUs share. A value that a GPU or driver does not report is not judged.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "health/checks/check.h"

namespace ms::health {

inline constexpr std::string_view kNvml = "NVML (paths.nvml)";  // Check::needs

// The GPUs that NVIDIA's driver has or should have, by PCI address: in this order NVML numbers them. Virtual functions
// and what another driver took (vfio-pci) are not this node's.
std::vector<std::string> gpus_on_bus(const Sysroot& root);

struct Expected {
  std::size_t count = 0;
  std::string by;           // who says so
  bool configured = false;  // the policy or gres.conf, not the bus
};
Expected expected_gpus(const Evidence& evidence);

// Why a check of single GPUs has nothing to look at; nullopt: there are some.
std::optional<Result> nothing_to_ask(Evidence& evidence);

Finding about(const Gpu& gpu, Severity severity, std::string message, std::optional<double> measured = {},
              std::optional<double> limit = {}, std::string unit = {});

// Runs `look` on every GPU; `tells` is whether it knows what `look` looks at.
template <class Tells, class Look>
Result each_gpu(Evidence& evidence, std::string_view what, Tells tells, Look look) {
  if (std::optional<Result> nothing = nothing_to_ask(evidence)) return *nothing;
  std::vector<Finding> findings;
  std::size_t told = 0;
  for (const Gpu& gpu : evidence.gpus().gpus) {
    if (!tells(gpu)) continue;
    ++told;
    look(gpu, findings);
  }
  if (told == 0) return skipped(fmt::format("no GPU tells its {}", what));
  return judged(std::move(findings), fmt::format("{} of {}", told, plural(evidence.gpus().gpus.size(), "GPU")));
}

}  // namespace ms::health
