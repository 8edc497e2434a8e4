// The check net.mlx5 (check.h): network adapters whose driver complains of their firmware or health, and adapters of
// any kind that stopped sending.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr KernelText kMlx5[] = {
    {"device's health compromised", Severity::warning, "its health is compromised"},
    {"Fatal error ", Severity::warning, "a fatal error of its firmware"},
    {"synd 0x", Severity::warning, "its firmware reported an internal error"},
    {"Detected insufficient power on the PCIe slot", Severity::warning, "its slot gives too little power"},
    {"Port module event[error]", Severity::warning, "a cable or module is faulty"},
    {"High temperature on sensors", Severity::warning, "it is too hot"},
    {"mlx5_pci_err_detected Device state", Severity::warning, "the PCI bus reported an error of it"},
};

// Lines of drivers about an interface: "bnxt_en 0000:3b:00.0 ens1f0np0: Error (timeout: 500) msg {0x23 0x4b1} len:0".
struct InterfaceRow {
  std::string_view driver, text, message;
};
constexpr InterfaceRow kInterfaces[] = {
    {"mlx5_core", "TX timeout detected", "it sent nothing for seconds: a transmit queue timed out"},
    {"bnxt_en", "Detected firmware fatal condition", "a fatal error of its firmware"},
    {"bnxt_en", "Error (timeout: ", "it did not answer a command of its driver"},
};

// Classes of errors that the driver of HPE Slingshot adapters writes; others pass by themselves.
constexpr std::string_view kCxiClasses[] = {"C_EC_UNCOR_NS", "C_EC_UNCOR_S", "C_EC_CRIT"};

// "mlx5_core 0000:17:00.0: poll_health:821:(pid 0): device's health compromised - reached miss count"; the function is
// not there in all kernels.
bool read_mlx5(Scan line, LogTally& tally) {
  if (!line.literal("mlx5_core ")) return false;
  std::string device(line.name());
  if (!device.ends_with(':') || !line.literal(" ")) return false;
  device.pop_back();
  Scan behind = line;
  if (!behind.device().empty() && behind.literal(":") && behind.number() && behind.literal(":(pid ") &&
      behind.number() && behind.literal("): ")) {
    line = behind;
  }
  for (const KernelText& known : kMlx5) {
    if (!line.literal(known.text)) continue;
    tally.add(known.severity, device, std::string(known.message));
    return true;
  }
  if (line.rest().find(" timeout. Will cause a leak of a command resource") == std::string_view::npos) return false;
  tally.add(Severity::warning, device, "it did not answer a command of its driver");
  return true;
}

bool read_interface(Scan line, LogTally& tally) {
  const std::string_view driver = line.device();
  if (!line.literal(" ") || line.name().empty() || !line.literal(" ")) return false;
  std::string_view interface = line.name();
  if (!interface.ends_with(':') || !line.literal(" ")) return false;
  interface.remove_suffix(1);
  for (const auto& row : kInterfaces) {
    if (driver != row.driver || !line.literal(row.text)) continue;
    tally.add(Severity::warning, std::string(interface), std::string(row.message));
    return true;
  }
  return false;
}

// "cxi_ss1 0000:21:00.0: cxi0[hsn0]: C_EC_UNCOR_NS: C1_HNI error: llr_eopb (32) (was first error at ...)"
bool read_cxi(Scan line, LogTally& tally) {
  if (!line.one_of({"cxi_ss1 ", "cxi_core "}) || !line.name().ends_with(':') || !line.literal(" ")) return false;
  const std::string_view device = line.device();
  if (!device.starts_with("cxi") || !line.literal("[") || line.device().empty() || !line.literal("]: ")) return false;
  const std::string_view kind = line.device();
  const std::string_view row = kind.substr(0, kind.find(':'));
  if (std::ranges::find(kCxiClasses, row) == std::end(kCxiClasses)) return false;
  tally.add(Severity::warning, std::string(device), "an error of its hardware that it could not correct",
            "See the errors in the kernel log. llr and mac errors come from the link: check the cable and the switch's "
            "port. Reboot the node after others, and replace the adapter if they recur.");
  return true;
}

// "NETDEV WATCHDOG: ens1f0 (i40e): transmit queue 3 timed out", and from kernel 6.7 on "i40e 0000:3b:00.0 ens1f0:
// NETDEV WATCHDOG: CPU: 3: transmit queue 3 timed out 5096 ms".
bool read_watchdog(std::string_view text, LogTally& tally) {
  constexpr std::string_view kWatchdog = "NETDEV WATCHDOG: ";
  const std::size_t at = text.find(kWatchdog);
  if (at == std::string_view::npos) return false;
  Scan behind(text.substr(at + kWatchdog.size()));
  std::string_view device;
  if (at == 0) {
    device = behind.name();
    if (!behind.literal(" (") || behind.device().empty() || !behind.literal(")")) return false;
  } else {
    Scan front(text.substr(0, at));
    if (front.device().empty() || !front.literal(" ") || front.name().empty() || !front.literal(" ")) return false;
    device = front.name();
    if (!device.ends_with(':') || front.rest() != " " || !behind.literal("CPU: ") || !behind.number()) return false;
    device.remove_suffix(1);
  }
  if (!behind.literal(": transmit queue ") || !behind.number() || !behind.literal(" timed out")) return false;
  tally.add(Severity::warning, std::string(device), "it sent nothing for seconds: a transmit queue timed out");
  return true;
}

Result check_net_mlx5(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped("the kernel's log cannot be read: " + log.error);
  LogTally tally;
  for (const KernelLine& line : log.lines) {
    const Scan scan(line.text);
    if (read_mlx5(scan, tally) || read_watchdog(line.text, tally) || read_interface(scan, tally) ||
        read_cxi(scan, tally))
      evidence.mark_judged(line);
  }
  return judged(tally.findings());
}

}  // namespace

extern constinit const Check kNetMlx5 = {
    .code = "net.mlx5",
    .lane = Lane::kernel,
    .summary = "network adapters with firmware or health errors, or that stopped sending",
    .needs = "/dev/kmsg",
    .explain =
        "Reads messages of the mlx5 driver: compromised health, internal firmware errors, command timeouts, "
        "insufficient slot power, high temperature, PCI errors, and faulty cables or modules; firmware errors and "
        "command timeouts of bnxt_en; errors of Slingshot adapters (cxi) that were not corrected; and transmit queues "
        "of any adapter that timed out. Not yet seen on real hardware, so it only warns.",
    .remedy =
        "Reset the adapter (mlxfwreset) or power-cycle the node; compare its firmware with that of the other nodes "
        "(ms-diag fleet).",
    .run = check_net_mlx5};

}  // namespace ms::health
