// The check gpu.sxid (check.h): errors that NVSwitches reported.
#include <fmt/format.h>

#include "health/checks/gpu_common.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

// "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 42 LTSSM Fault Up"
bool read_sxid(Scan line, LogTally& tally) {
  if (!line.literal("nvidia-nvswitch")) return false;
  const auto number = line.number();
  if (!number || !line.literal(": SXid (PCI:")) return false;
  const std::string_view pci = line.name();
  if (pci.empty() || !line.literal("): ")) return false;
  const auto sxid = line.number();
  if (!sxid || !line.literal(", ")) return false;
  const bool fatal = line.literal("Fatal, ");
  // Only fatal ones are rare enough to be told apart by the driver's words.
  tally.add(Severity::warning, fmt::format("switch {}", *number),
            fmt::format("{} error SXid {} of the NVSwitch at {}{}", fatal ? "fatal" : "non-fatal", *sxid, pci,
                        fatal ? fmt::format(" ({})", printable(line.rest())) : ""));
  return true;
}

Result check_gpu_sxid(Evidence& evidence) {
  if (gpus_on_bus(evidence.root()).empty()) return skipped("no NVIDIA GPU here");
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped("the kernel's log cannot be read: " + log.error);
  LogTally tally;
  for (const KernelLine& line : log.lines) {
    if (read_sxid(Scan(line.text), tally)) evidence.mark_judged(line);
  }
  return judged(tally.findings());
}

}  // namespace

extern constinit const Check kGpuSxid = {
    .code = "gpu.sxid",
    .lane = Lane::kernel,
    .summary = "NVSwitch errors",
    .needs = "/dev/kmsg",
    .blame = Blame::gpu,
    .explain =
        "Reads the SXids of NVSwitches in the kernel log. After a fatal SXid, NVLinks of the node are down until GPUs "
        "and switches are reset. Other SXids are counted. Not yet seen on real hardware, so it only warns.",
    .remedy =
        "After a fatal SXid, when no job runs, reset the GPUs and switches together (nvidia-smi -r) or reboot the "
        "node. If the SXid recurs, have the baseboard tested.",
    .run = check_gpu_sxid};

}  // namespace ms::health
