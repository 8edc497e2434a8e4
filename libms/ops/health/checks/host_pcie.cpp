// The check host.pcie (check.h): PCIe errors that were not corrected, and devices that dropped off the bus.
#include <fmt/format.h>

#include <algorithm>

#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

// "pcieport 0000:00:01.0: AER: Multiple Uncorrectable (Fatal) error message received from 0000:17:00.0", and the same
// with "Uncorrected (Fatal) error received: " of kernels before 6.9.
bool read_aer(Scan line, LogTally& tally) {
  if (!line.literal("pcieport ")) return false;
  std::string port(line.name());  // with the colon behind it
  if (!line.literal(" AER: ")) return false;
  line.literal("Multiple ");
  if (!line.one_of({"Uncorrected (", "Uncorrectable ("})) return false;
  const bool fatal = line.literal("Fatal) error ");
  if (!fatal && !line.literal("Non-Fatal) error ")) return false;
  if (!line.one_of({"message received from ", "received: "})) return false;
  const std::string_view from = line.name();
  tally.add(Severity::warning, from.empty() ? port : std::string(from),
            fmt::format("{} uncorrected PCIe error", fatal ? "fatal" : "non-fatal"));
  return true;
}

// Lines of a port about an uncorrected error of the device below it.
constexpr KernelText kPort[] = {
    {"DPC: containment event, ", Severity::warning,
     "the port cut its device off after an uncorrected PCIe error (DPC)"},
    {"AER: device recovery failed", Severity::warning, "the device below it did not recover from a PCIe error"},
    {"broken device, ", Severity::warning, "the link below it cannot be trained"},
};

bool read_port(Scan line, LogTally& tally) {
  if (!line.literal("pcieport ")) return false;
  const std::string_view port = line.name();
  if (!port.ends_with(':') || !line.literal(" ")) return false;
  const auto known = std::ranges::find_if(kPort, [&](const KernelText& row) { return line.literal(row.text); });
  if (known == std::end(kPort)) return false;
  tally.add(known->severity, std::string(port.substr(0, port.size() - 1)), std::string(known->message));
  return true;
}

// "pcieport 0000:00:01.0: pciehp: Slot(4): Link Down"
bool read_hotplug(Scan line, LogTally& tally) {
  if (!line.literal("pcieport ")) return false;
  const std::string_view port = line.name();
  if (!line.literal(" pciehp: Slot(")) return false;
  const std::string slot(line.device());
  if (slot.empty() || !line.literal("): ")) return false;
  const bool down = line.literal("Link Down");
  if (!down && !line.literal("Card not present")) return false;
  tally.add(Severity::warning, fmt::format("slot {} at {}", slot, port.substr(0, port.size() - 1)),
            down ? "its PCIe link went down" : "its card is gone");
  return true;
}

// "NMI: PCI system error (SERR) for reason b1 on CPU 0."
constexpr KernelText kNmi[] = {
    {"PCI system error (SERR) for reason ", Severity::warning, "a device signalled a PCI system error (SERR)"},
    {"IOCK error (debug interrupt?) for reason ", Severity::warning, "a device signalled an I/O check error (IOCK)"},
};

bool read_nmi(Scan line, LogTally& tally) {
  if (!line.literal("NMI: ")) return false;
  const auto known = std::ranges::find_if(kNmi, [&](const KernelText& row) { return line.literal(row.text); });
  if (known == std::end(kNmi) || !line.hex() || !line.literal(" on CPU ")) return false;
  tally.add(known->severity, "node", std::string(known->message),
            "The BMC's event log (ipmitool sel list) names the device; reseat it, and replace it if the error recurs.");
  return true;
}

Result check_host_pcie(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped("the kernel's log cannot be read: " + log.error);
  LogTally tally;
  for (const KernelLine& line : log.lines) {
    const Scan scan(line.text);
    if (read_aer(scan, tally) || read_port(scan, tally) || read_hotplug(scan, tally) || read_nmi(scan, tally))
      evidence.mark_judged(line);
  }
  return judged(tally.findings());
}

}  // namespace

extern constinit const Check kHostPcie = {
    .code = "host.pcie",
    .lane = Lane::kernel,
    .summary = "uncorrected PCIe errors, and devices that dropped off the bus",
    .needs = "/dev/kmsg",
    .explain =
        "Reads messages of the kernel's AER, DPC and hot-plug code: uncorrected errors, fatal or not, ports that cut "
        "their device off (DPC) or whose device did not recover, and slots whose link went down or whose card is "
        "missing; and non-maskable interrupts (NMI) by which a device signals a system error. Corrected errors are "
        "ignored, since links retry.",
    .remedy =
        "Reseat the named device or its riser; if the error recurs, replace it. After a fatal error reboot the node.",
    .run = check_host_pcie};

}  // namespace ms::health
