// The columns of samples: one table for what is read, its unit, and the manual.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/sysroot.h"
#include "health/evidence/gpus.h"

namespace ms::health {

// errors: a counter that should not rise. Counters begin anew with the driver or the node.
enum class ColumnKind { level, counter, errors };

// Exactly one of file, of_gpu and of_host is set.
struct ColumnRow {
  std::string_view device = {};  // kind of device: "host", "gpu", "net", "ib", "disk"
  std::string_view name = {};
  std::string_view unit = {};
  ColumnKind kind = ColumnKind::level;
  std::string_view doc = {};   // half a sentence
  std::string_view file = {};  // of links and disks: below the device's directory in sysfs
  double scale = 1;            // times what the file says
  std::optional<double> (*of_gpu)(const Gpu&) = nullptr;
  std::optional<double> (*of_host)(const Sysroot&) = nullptr;
};

std::span<const ColumnRow> telemetry_columns();

// The kind of a device of a series: "" -> "host", "gpu0" -> "gpu", "net/eth0" -> "net".
std::string device_kind(std::string_view device);

// The column that counts what a check found in the kernel's log: "gpu.xid" -> "log_gpu_xid".
std::string log_column(std::string_view code);
inline constexpr std::string_view kLogPrefix = "log_";
// And those of a GPU's Xids in that log.
inline constexpr std::string_view kXids = "xids", kLastXid = "last_xid";

// Its unit and kind; of names that are in no table "" and level.
std::pair<std::string_view, ColumnKind> column_of(std::string_view device, std::string_view name);

// Terms and what they mean, for the manual.
std::vector<std::pair<std::string, std::string>> column_terms();

}  // namespace ms::health
