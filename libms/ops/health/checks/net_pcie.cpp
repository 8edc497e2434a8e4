// The check net.pcie (check.h): PCIe links of network adapters and NVMe disks. GPUs have gpu.pcie.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "health/checks/check.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr std::int64_t kWidest = 32;  // lanes; what sysfs gives beyond that (255) means that it is not known

struct Device {
  std::string name;  // "eth0", "nvme0"
  bool is_network = false;
};

// By PCI address. An adapter is met once, under its first name.
std::map<std::string, Device> devices(const Sysroot& root) {
  std::map<std::string, Device> found;
  for (const std::string_view kind : {"net", "infiniband", "nvme"}) {
    for (const std::string& name : root.list(fmt::format("/sys/class/{}", kind))) {
      const std::string address = root.link_name(fmt::format("/sys/class/{}/{}/device", kind, name));
      if (!address.empty()) found.try_emplace(address, Device{name, kind != "nvme"});
    }
  }
  return found;
}

std::optional<std::int64_t> width(const Sysroot& root, const std::string& directory, std::string_view which) {
  const auto lanes = root.read_int(fmt::format("{}/{}_link_width", directory, which));
  return lanes && *lanes > 0 && *lanes <= kWidest ? lanes : std::nullopt;
}

// "32.0 GT/s PCIe" -> 32.0
std::optional<double> speed(const Sysroot& root, const std::string& directory, std::string_view which) {
  const auto text = root.read(fmt::format("{}/{}_link_speed", directory, which), 256);
  if (!text) return std::nullopt;
  Scan scan(*text);
  const auto gts = scan.decimal();
  return gts >= 1 && scan.literal(" GT/s") ? gts : std::nullopt;
}

// Returns the best that both ends support (the other end is the bridge above): 16 lanes in a slot of 8 are no fault.
template <class Number>
std::optional<Number> best_of_both(std::optional<Number> device, std::optional<Number> bridge) {
  return device && bridge ? std::optional(std::min(*device, *bridge)) : device;
}

Result check_net_pcie(Evidence& evidence) {
  const Sysroot& root = evidence.root();
  std::vector<Finding> findings;
  std::size_t judged_devices = 0;
  for (const auto& [address, device] : devices(root)) {
    const std::string directory = "/sys/bus/pci/devices/" + address;
    const std::string entity = fmt::format("{} {}", device.name, address);
    const auto lanes = width(root, directory, "current");
    const auto most_lanes = best_of_both(width(root, directory, "max"), width(root, directory + "/..", "max"));
    if (!lanes || !most_lanes) continue;  // not PCI, or a virtual function
    ++judged_devices;
    if (*lanes < *most_lanes) {
      findings.push_back(about(entity, *lanes * 2 <= *most_lanes ? Severity::critical : Severity::warning,
                               fmt::format("{} of {} PCIe lanes", *lanes, *most_lanes), *lanes, *most_lanes, "lanes"));
    }
    if (!device.is_network) continue;  // idle disks save power by running slower
    const auto gts = speed(root, directory, "current");
    const auto most_gts = best_of_both(speed(root, directory, "max"), speed(root, directory + "/..", "max"));
    if (!gts || !most_gts || *gts >= *most_gts) continue;
    findings.push_back(about(entity, Severity::warning, fmt::format("PCIe at {:g} of {:g} GT/s", *gts, *most_gts), *gts,
                             *most_gts, "GT/s"));
  }
  if (judged_devices == 0) return skipped("there is no network adapter and no NVMe disk on PCI Express here");
  return judged(std::move(findings), plural(judged_devices, "device"));
}

}  // namespace

extern constinit const Check kNetPcie = {
    .code = "net.pcie",
    .summary = "network adapters and NVMe disks with too few PCIe lanes",
    .needs = "/sys/bus/pci",
    .explain =
        "Compares the PCIe link width of network adapters and NVMe disks, and for network adapters also the link "
        "speed, with the maximum of the device and the bridge above it. Fewer lanes are a warning, half or fewer are "
        "critical: the device works, but every transfer is slow, and so is every node that waits for it.",
    .remedy = "Reboot the node; if that does not help, reseat the card or its riser.",
    .run = check_net_pcie};

}  // namespace ms::health
