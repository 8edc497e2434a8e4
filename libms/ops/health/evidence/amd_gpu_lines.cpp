#include "health/evidence/storage_lines.h"

#include <fmt/format.h>

namespace ms::health {
namespace {

constexpr std::string_view kQuery =
    "Query the GPU (amd-smi metric --ecc, rocm-smi --showrasinfo); if its counters grew, reset it when no job runs. "
    "Replace the GPU if the errors recur.";
constexpr std::string_view kReset =
    "Reset the GPU when no job runs (amd-smi reset --gpureset), or reboot the node. Replace the GPU if this recurs.";

struct AmdLine {
  std::string_view begins, holds, message, remedy;
};
constexpr AmdLine kLines[] = {
    {"uncorrectable hardware error", "(ERREVENT_ATHUB_INTERRUPT) detected!", "a fatal error of its hardware", kQuery},
    {"Uncorrectable hardware error", "(ERREVENT_ATHUB_INTERRUPT) detected!", "a fatal error of its hardware", kQuery},
    {"poison is consumed by ", "kick off gpu reset flow", "damaged data was used", kQuery},
    {"RAS poison is consumed by ", "kick off gpu reset flow", "damaged data was used", kQuery},
    {"GPU reset(", ") failed", "its reset failed", kReset},
    {"RAS records:", " exceed threshold:", "it has more bad pages than its limit",
     "Replace the GPU: its driver does not start it any more."},
    {"Fatal error during GPU init", "", "its driver could not start it", kReset},
    {"probe with driver amdgpu failed with error ", "", "its driver could not start it", kReset},
};

// "socket: 0, die: 0 1 uncorrectable hardware errors detected in total in umc block". Some drivers print it for each
// query, with a wrong count.
std::string errors_of_block(std::string_view text) {
  for (const std::string_view errors :
       {"uncorrectable hardware errors detected in ", "uncorrectable hardware errors detected in total in "}) {
    const std::size_t at = text.find(errors);
    if (at == std::string_view::npos || (at > 0 && text[at - 1] != ' ')) continue;
    Scan behind(text.substr(at + errors.size()));
    const std::string_view block = behind.device();
    if (!block.empty() && behind.literal(" block"))
      return fmt::format("uncorrectable errors of its {} block", printable(block));
  }
  return "";
}

}  // namespace

// "amdgpu 0000:63:00.0: amdgpu: {12}...": with its own name and the number of the event, or without.
bool read_amd_gpu(Scan line, LogTally& tally) {
  if (!line.literal("amdgpu ")) return false;
  const std::string_view device = line.name();
  if (!device.ends_with(':') || !line.literal(" ")) return false;
  line.literal("amdgpu: ");
  if (line.literal("{") && (!line.number() || !line.literal("}"))) return false;
  line.blanks();
  const std::string gpu = fmt::format("gpu {}", device.substr(0, device.size() - 1));
  for (const auto& row : kLines) {
    if (!line.rest().starts_with(row.begins) || line.rest().find(row.holds) == std::string_view::npos) continue;
    tally.add(Severity::warning, gpu, std::string(row.message), row.remedy);
    return true;
  }
  const std::string message = errors_of_block(line.rest());
  if (message.empty()) return false;
  tally.add(Severity::warning, gpu, message, kQuery);
  return true;
}

}  // namespace ms::health
