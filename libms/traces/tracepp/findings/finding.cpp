#include "tracepp/findings/finding.h"

#include <algorithm>
#include <array>

namespace ms::tracepp {
namespace {

using Code = FindingCode;

constexpr std::array<FindingKind, 8> kKinds{{
    {Code::slow_rank, "slow_rank", true, false, "A rank computes longer than ranks with the same work."},
    {Code::slow_link, "slow_link", true, false,
     "Communication of a pipeline edge, a group or a rank takes longer than elsewhere."},
    {Code::pause, "pause", true, true, "A rank or a host stalled in one step."},
    {Code::data_stall, "data_stall", true, true, "A dp rank waited for its tokens."},
    {Code::launch_delay, "launch_delay", true, true,
     "Ranks stalled repeatedly although the inputs of their next operation were ready."},
    {Code::last_stage, "last_stage", false, false,
     "The last pipeline stage has more to compute than the others. Not a fault."},
    {Code::slow_stage, "slow_stage", false, false,
     "Pipeline stages before the last have more to compute than the others. Not a fault."},
    {Code::uneven_sequences, "uneven_sequences", false, false, "Microbatches differ in work. Not a fault."},
}};
static_assert(std::ranges::all_of(kKinds, [](const FindingKind& kind) {
  return &kKinds[static_cast<std::size_t>(kind.code)] == &kind;
}));

}  // namespace

std::span<const FindingKind> finding_kinds() { return kKinds; }
const FindingKind& kind_of(FindingCode code) { return kKinds[static_cast<std::size_t>(code)]; }
std::string_view to_string(FindingCode code) { return kind_of(code).name; }

std::string finding_names(bool faults) {
  std::string text;
  for (const FindingKind& kind : kKinds) {
    if (kind.is_fault != faults) continue;
    text += text.empty() ? "" : ", ";
    text += kind.name;
  }
  return text;
}

}  // namespace ms::tracepp
