// Whose disk a name in the kernel's log is: built into this node, plugged in or mounted by a user, or across a network.
// Used by disk.errors and disk.ro.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/finding.h"
#include "base/sysroot.h"

namespace ms::health {

// "nvme0n1p2" -> "nvme0n1", "sda1" -> "sda", "md0p1" -> "md0"; other names are their own disk.
std::string disk_of(std::string_view device);

// How bad an error of this block device (or "nvme0", a controller) is for the node: critical where it is the node's
// own; warning where it is gone or across a network; nullopt where a user may be behind it (loop, usb, optical, images
// behind dm) or the name is unknown.
std::optional<Severity> disk_severity(const Sysroot& root, std::string_view device);

}  // namespace ms::health
