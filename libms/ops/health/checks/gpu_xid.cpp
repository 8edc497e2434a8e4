// The check gpu.xid (check.h): Xids in the kernel's log.
#include <algorithm>
#include <map>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/checks/gpu_common.h"
#include "health/evidence/scan.h"
#include "health/evidence/xid.h"

namespace ms::health {
namespace {

Result check_gpu_xid(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped(log.error);
  const std::vector<std::string> on_bus = gpus_on_bus(evidence.root());
  const auto entity_at = [&](const std::string& pci) {
    const auto found = std::find(on_bus.begin(), on_bus.end(), pci);
    return found == on_bus.end() ? "gpu " + pci : fmt::format("gpu {} ({})", found - on_bus.begin(), pci);
  };
  LogTally tally;
  std::map<std::string, XidLine> last_action;  // by PCI address: a later Xid 154 takes back an earlier one
  std::multimap<std::string, const KernelLine*> action_lines;
  std::size_t seen = 0;
  for (const KernelLine& line : log.lines) {
    const std::optional<XidLine> xid = parse_xid(line.text);
    if (!xid) continue;
    ++seen;
    if (xid->number == 154) {
      last_action[xid->pci] = *xid;
      action_lines.emplace(xid->pci, &line);
      continue;
    }
    if (xid->nvlink) {
      const NvlinkAdvice advice = advice_for(*xid->nvlink);
      evidence.mark_judged(line);
      if (advice.severity == Severity::note) continue;
      const auto& [fatal, unit, link, subcode] = *xid->nvlink;
      tally.add(advice.severity, entity_at(xid->pci),
                fmt::format("Xid {}: fatal NVLink error{} ({}{})", xid->number,
                            link < 0 ? "" : fmt::format(" of link {}", link), unit,
                            subcode < 0 ? "" : fmt::format(", subcode {}", subcode)),
                advice.remedy);
      continue;
    }
    const XidRow* row = find_xid(xid->number);
    if (row != nullptr && (row->user_can_cause || row->severity == Severity::note)) continue;
    tally.add(row ? row->severity : Severity::warning, entity_at(xid->pci),
              fmt::format("Xid {}: {}", xid->number, row ? row->meaning : "not known to us"));
    evidence.mark_judged(line);
  }
  for (const auto& [pci, xid] : last_action) {
    if (xid.action == RecoveryAction::none) continue;
    const RecoveryAdvice advice = xid.action ? advice_for(*xid.action) : RecoveryAdvice{Severity::warning, "something"};
    tally.add(advice.severity, entity_at(pci), fmt::format("Xid 154: the driver asks for {}", advice.words));
    const auto [first, last] = action_lines.equal_range(pci);
    for (auto line = first; line != last; ++line) evidence.mark_judged(*line->second);
  }
  std::vector<Finding> findings = tally.findings();
  if (findings.empty() && seen == 0 && on_bus.empty()) return skipped("no NVIDIA GPU here, and no Xid in the log");
  return judged(std::move(findings), seen == 0 ? "no Xid" : "nothing against a GPU in " + plural(seen, "Xid"));
}

}  // namespace

extern constinit const Check kGpuXid = {
    .code = "gpu.xid",
    .lane = Lane::kernel,
    .summary = "Xids in the kernel log that indicate a GPU fault",
    .needs = "/dev/kmsg",
    .blame = Blame::gpu,
    .explain =
        "The driver writes an Xid to the kernel log when something goes wrong on a GPU. Xids for broken hardware or a "
        "required reset are critical (48, 54, 62, 64, 79, 95, 119, 120, 140, 143, 158); Xids that need a closer look "
        "are warnings (46, 74, 94 and others). Xids 144 to 150 are judged by the severity in their text: nonfatal ones "
        "do not count, and fatal ones are critical. Xid 149 is only a warning if its subcode shows that the other end "
        "or software took the link down. Xid 154 is judged by the action in its text, and the last one "
        "of a GPU counts.\n\n"
        "Xids that a program can cause never count: 13, 31, 43, 45, 109 and similar ones. Only lines that the kernel "
        "itself wrote since the boot of the node and its last undrain count. After a reset of the GPU, undrain the "
        "node.",
    .remedy =
        "Reset the GPU (nvidia-smi --gpu-reset -i N), or reboot the node after Xid 79; if the Xid recurs, have the GPU "
        "replaced. See NVIDIA's Xid catalog for the number.",
    .run = check_gpu_xid};

}  // namespace ms::health
