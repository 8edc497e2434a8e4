#include "health/evidence/disk_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace ms::health {
namespace {

constexpr int kMaxStack = 8;  // device-mapper upon device-mapper upon ...

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view without_digits(std::string_view name) {
  while (!name.empty() && is_digit(name.back())) name.remove_suffix(1);
  return name;
}

// Whether a path in sysfs is of a disk across a network: iSCSI, Fibre Channel, the virtual disks of Hyper-V and Azure,
// and SRP, whose ports have no end device as those of SAS.
bool is_far(std::string_view place) {
  const auto has = [&](std::string_view part) { return place.find(part) != std::string_view::npos; };
  return has("/session") || has("/rport-") || has("/VMBUS:") || has("/MSFT1000:") ||
         (has("/port-") && !has("/end_device-"));
}

// SCSI disks are anything: built in, USB sticks, iSCSI and Fibre Channel volumes. Where the device hangs tells.
std::optional<Severity> scsi_severity(const Sysroot& root, const std::string& disk) {
  const std::string directory = "/sys/block/" + disk;
  if (!root.exists(directory)) return Severity::warning;
  if (root.read_int(directory + "/removable").value_or(0) != 0) return std::nullopt;
  std::error_code no_link;
  const std::string place = std::filesystem::read_symlink(root.path(directory), no_link).string();
  if (place.find("/usb") != std::string::npos) return std::nullopt;
  return is_far(place) ? Severity::warning : Severity::critical;
}

std::string digits_at(std::string_view text, std::size_t at) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
  return std::string(text.substr(at, end - at));
}

// The controllers behind "nvme0", "nvme0n1", or "nvme0c1n1" (by controller 1). The number of a disk of several
// controllers is its subsystem's, and need not be one of theirs.
std::vector<std::string> nvme_controllers(const Sysroot& root, const std::string& name) {
  constexpr std::size_t kPrefix = 4;  // "nvme"
  constexpr const char* kAll = "/sys/class/nvme";
  const std::string number = digits_at(name, kPrefix);
  const std::size_t behind = kPrefix + number.size();
  const bool is_path = behind < name.size() && name[behind] == 'c';
  const std::string own = "nvme" + (is_path ? digits_at(name, behind + 1) : number);
  std::error_code no_link;
  const std::string place = std::filesystem::read_symlink(root.path("/sys/block/" + name), no_link).string();
  const std::size_t subsystem = place.find("/nvme-subsys", place.find("/virtual/nvme-subsystem/"));
  if (place.find("/virtual/") == std::string::npos || subsystem == std::string::npos) {
    if (root.exists(fmt::format("{}/{}", kAll, own))) return {own};
    return root.exists("/sys/block/" + name) ? root.list(kAll) : std::vector<std::string>();
  }
  const std::size_t end = place.find('/', subsystem + 1);
  std::vector<std::string> controllers =
      root.list("/sys/class/nvme-subsystem" + place.substr(subsystem, end - subsystem));
  std::erase_if(controllers, [&](const std::string& each) {
    return !each.starts_with("nvme") || "nvme" + digits_at(each, kPrefix) != each;
  });
  return controllers;
}

// The transport says whether a controller is in this machine.
Severity nvme_severity(const Sysroot& root, const std::string& name) {
  const std::vector<std::string> controllers = nvme_controllers(root, name);
  const bool is_far = std::ranges::any_of(controllers, [&](const std::string& each) {
    const auto transport = root.read(fmt::format("/sys/class/nvme/{}/transport", each), 64);
    return transport && *transport != "pcie";
  });
  return controllers.empty() || is_far ? Severity::warning : Severity::critical;
}

std::optional<Severity> severity(const Sysroot& root, std::string_view device, int depth) {
  const std::string disk = disk_of(device);
  if (disk.starts_with("nvme") && disk.size() > 4 && is_digit(disk[4])) return nvme_severity(root, disk);
  if (disk.starts_with("sd")) return scsi_severity(root, disk);
  if (disk.starts_with("vd") || disk.starts_with("xvd"))
    return root.exists("/sys/block/" + disk) ? Severity::critical : Severity::warning;
  const bool md = disk.starts_with("md") && disk.size() > 2 && is_digit(disk[2]);
  const bool dm = disk.starts_with("dm-");
  if ((!md && !dm) || depth >= kMaxStack) return std::nullopt;
  const auto parts = root.list(fmt::format("/sys/block/{}/slaves", disk));
  if (parts.empty()) return md ? std::optional(Severity::critical) : std::nullopt;
  Severity mildest = Severity::critical;
  for (const std::string& part : parts) {
    const auto of_part = severity(root, part, depth + 1);
    if (!of_part) return std::nullopt;
    mildest = std::min(mildest, *of_part);
  }
  return mildest;
}

}  // namespace

std::string disk_of(std::string_view device) {
  const std::string_view bare = without_digits(device);
  if (bare.size() == device.size() || device.starts_with("dm-")) return std::string(device);
  if (device.starts_with("nvme") || device.starts_with("md") || device.starts_with("mmcblk")) {
    // A partition is behind a 'p' that follows a digit.
    const bool partition = bare.size() >= 2 && bare.back() == 'p' && is_digit(bare[bare.size() - 2]);
    return std::string(partition ? bare.substr(0, bare.size() - 1) : device);
  }
  if (device.starts_with("sd") || device.starts_with("vd") || device.starts_with("xvd")) return std::string(bare);
  return std::string(device);
}

std::optional<Severity> disk_severity(const Sysroot& root, std::string_view device) {
  return severity(root, device, 0);
}

}  // namespace ms::health
