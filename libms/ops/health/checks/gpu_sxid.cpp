// The check gpu.sxid (check.h): errors that NVSwitches reported.
#include <fmt/format.h>

#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "health/checks/gpu_common.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

// The driver writes three lines for an error: its words, "Severity 1 Engine instance 42 ..." and "Data {...}". The
// words are the event; the severity counts if they do not say it, or are lost.
class SwitchErrors {
 public:
  // "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 42 LTSSM Fault Up"
  bool read(Scan line) {
    if (!line.literal("nvidia-nvswitch")) return false;
    const auto number = line.number();
    if (!number || !line.literal(": SXid (PCI:")) return false;
    const std::string_view pci = line.name();
    if (pci.empty() || !line.literal("): ")) return false;
    const auto sxid = line.number();
    if (!sxid || !line.literal(", ")) return false;
    if (line.literal("Data ")) return true;
    const Key key{*number, *sxid, std::string(pci)};
    if (line.literal("Severity ")) {
      const auto open = open_.find(key);
      if (open != open_.end() || !named_.contains(key)) {
        add(key, line.number() == 1, open == open_.end() ? "" : open->second);
        open_.erase(key);
      }
      return true;
    }
    named_.insert(key);
    const bool fatal = line.literal("Fatal, ");
    if (fatal || line.literal("Non-fatal, ")) {
      add(key, fatal, line.rest());
    } else {
      open_[key] = line.rest();
    }
    return true;
  }

  std::vector<Finding> findings() {
    for (const auto& [key, words] : std::exchange(open_, {})) add(key, false, words);
    return tally_.findings();
  }

 private:
  using Key = std::tuple<std::uint64_t, std::uint64_t, std::string>;  // switch, SXid, PCI address

  // Only fatal ones are rare enough to be told apart by the driver's words.
  void add(const Key& key, bool fatal, std::string_view words) {
    const auto& [number, sxid, pci] = key;
    tally_.add(Severity::warning, fmt::format("switch {}", number),
               fmt::format("{} error SXid {} of the NVSwitch at {}{}", fatal ? "fatal" : "non-fatal", sxid, pci,
                           fatal && !words.empty() ? fmt::format(" ({})", printable(words)) : ""));
  }

  std::set<Key> named_;              // whose words were there
  std::map<Key, std::string> open_;  // words without a severity
  LogTally tally_;
};

Result check_gpu_sxid(Evidence& evidence) {
  if (gpus_on_bus(evidence.root()).empty()) return skipped("no NVIDIA GPU here");
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped("the kernel's log cannot be read: " + log.error);
  SwitchErrors errors;
  for (const KernelLine& line : log.lines) {
    if (errors.read(Scan(line.text))) evidence.mark_judged(line);
  }
  return judged(errors.findings());
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
        "and switches are reset. Other SXids are counted. The lines of one error (words, severity, data) count once. "
        "Not yet seen on real hardware, so it only warns.",
    .remedy =
        "After a fatal SXid, when no job runs, reset the GPUs and switches together (nvidia-smi -r) or reboot the "
        "node. If the SXid recurs, have the baseboard tested.",
    .run = check_gpu_sxid};

}  // namespace ms::health
