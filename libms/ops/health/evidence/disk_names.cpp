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

// SCSI disks are anything: built in, USB sticks, iSCSI and Fibre Channel volumes. Where the device hangs tells.
std::optional<Severity> scsi_severity(const Sysroot& root, const std::string& disk) {
  const std::string directory = "/sys/block/" + disk;
  if (!root.exists(directory)) return Severity::warning;
  if (root.read_int(directory + "/removable").value_or(0) != 0) return std::nullopt;
  std::error_code no_link;
  const std::string place = std::filesystem::read_symlink(root.path(directory), no_link).string();
  if (place.find("/usb") != std::string::npos) return std::nullopt;
  const bool far = place.find("/session") != std::string::npos || place.find("/rport-") != std::string::npos;
  return far ? Severity::warning : Severity::critical;
}

// "nvme0", "nvme0n1", "nvme0c1n1": the transport says whether it is in this machine. A disk of several controllers
// bears a number that need not be one of theirs.
Severity nvme_severity(const Sysroot& root, const std::string& name) {
  const std::size_t digits = std::min(name.find_first_not_of("0123456789", 4), name.size());
  const std::string controller = "/sys/class/nvme/" + name.substr(0, digits);
  if (!root.exists(controller) && !root.exists("/sys/block/" + name)) return Severity::warning;
  const auto transport = root.read(controller + "/transport", 64);
  return transport && *transport != "pcie" ? Severity::warning : Severity::critical;
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
