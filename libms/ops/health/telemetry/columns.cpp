#include "health/telemetry/columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/text.h"
#include "health/evidence/nvml.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

template <class T>
std::optional<double> as_double(const std::optional<T>& value) {
  return value ? std::optional(static_cast<double>(*value)) : std::nullopt;
}

// "MemAvailable:   1048576 kB" of /proc/meminfo, in MiB.
std::optional<double> meminfo_mib(const Sysroot& root, std::string_view key) {
  for (const std::string& line : split(root.read("/proc/meminfo").value_or(""), '\n')) {
    Scan scan(line);
    if (!scan.literal(key) || !scan.literal(":")) continue;
    scan.blanks();
    if (const auto kib = scan.number()) return static_cast<double>(*kib) / 1024;
  }
  return std::nullopt;
}

// "some avg10=0.00 avg60=0.00 avg300=1.25 total=..." of /proc/pressure.
std::optional<double> pressure(const Sysroot& root, std::string_view what, std::string_view line_start) {
  for (const std::string& line : split(root.read(fmt::format("/proc/pressure/{}", what)).value_or(""), '\n')) {
    const std::size_t at = line.find("avg300=");
    if (line.starts_with(line_start) && at != std::string::npos) return std::strtod(line.c_str() + at + 7, nullptr);
  }
  return std::nullopt;
}

std::optional<double> first_number(const Sysroot& root, std::string_view path) {
  const auto text = root.read(path, 256);
  if (!text || text->empty() || text->front() < '0' || text->front() > '9') return std::nullopt;
  return std::strtod(text->c_str(), nullptr);
}

// Sums FILE over the entries of a directory; nullopt: none has it.
std::optional<double> sum_of(const Sysroot& root, std::string_view directory, std::string_view file) {
  std::optional<double> sum;
  for (const std::string& name : root.list(directory)) {
    const auto value = root.read_int(fmt::format("{}/{}/{}", directory, name, file));
    if (value) sum = sum.value_or(0) + static_cast<double>(*value);
  }
  return sum;
}

bool is_input(std::string_view name, std::string_view sensor) {
  Scan scan(name);
  return scan.literal(sensor) && scan.number() && scan.literal("_input") && scan.at_end();
}

enum class Chips { processors, others };

// Reads all inputs of the sensors of some chips; those of NVMe disks are the disks' own.
std::vector<double> sensor_inputs(const Sysroot& root, std::string_view sensor, Chips chips) {
  constexpr std::string_view kSensorsDirectory = "/sys/class/hwmon";
  std::vector<double> values;
  for (const std::string& device : root.list(kSensorsDirectory)) {
    const std::string directory = fmt::format("{}/{}", kSensorsDirectory, device);
    const std::string chip = root.read(directory + "/name", 64).value_or("");
    const bool processor = chip == "coretemp" || chip == "k10temp" || chip == "zenpower";
    if (chip == "nvme" || processor != (chips == Chips::processors)) continue;
    for (const std::string& name : root.list(directory)) {
      if (!is_input(name, sensor)) continue;
      const auto value = root.read_int(directory + "/" + name);
      if (value) values.push_back(static_cast<double>(*value));
    }
  }
  return values;
}

std::optional<double> hottest(const Sysroot& root, Chips chips) {
  const std::vector<double> values = sensor_inputs(root, "temp", chips);
  return values.empty() ? std::nullopt : std::optional(*std::max_element(values.begin(), values.end()) / 1000);
}

std::optional<double> slowest_fan(const Sysroot& root) {
  const std::vector<double> values = sensor_inputs(root, "fan", Chips::others);
  return values.empty() ? std::nullopt : std::optional(*std::min_element(values.begin(), values.end()));
}

using Kind = ColumnKind;

constexpr ColumnRow host_row(std::string_view name, std::string_view unit, Kind kind, std::string_view doc,
                             std::optional<double> (*read)(const Sysroot&)) {
  return {.device = "host", .name = name, .unit = unit, .kind = kind, .doc = doc, .of_host = read};
}
constexpr ColumnRow gpu_row(std::string_view name, std::string_view unit, Kind kind, std::string_view doc,
                            std::optional<double> (*read)(const Gpu&)) {
  return {.device = "gpu", .name = name, .unit = unit, .kind = kind, .doc = doc, .of_gpu = read};
}
constexpr ColumnRow net_row(std::string_view name, std::string_view unit, Kind kind, std::string_view doc,
                            std::string_view file) {
  return {.device = "net", .name = name, .unit = unit, .kind = kind, .doc = doc, .file = file};
}
constexpr ColumnRow ib_row(std::string_view name, std::string_view unit, Kind kind, std::string_view doc,
                           std::string_view file) {
  return {.device = "ib", .name = name, .unit = unit, .kind = kind, .doc = doc, .file = file};
}
constexpr ColumnRow disk_row(std::string_view name, std::string_view unit, Kind kind, std::string_view doc,
                             std::string_view file, double scale = 1) {
  return {.device = "disk", .name = name, .unit = unit, .kind = kind, .doc = doc, .file = file, .scale = scale};
}

constexpr ColumnRow kColumnRows[] = {
    host_row("uptime_s", "s", Kind::level, "time since the node booted",
             [](const Sysroot& root) { return first_number(root, "/proc/uptime"); }),
    host_row("load", "", Kind::level, "load average of one minute",
             [](const Sysroot& root) { return first_number(root, "/proc/loadavg"); }),
    host_row("memory_available_mib", "MiB", Kind::level, "available memory",
             [](const Sysroot& root) { return meminfo_mib(root, "MemAvailable"); }),
    host_row("cpu_pressure_percent", "%", Kind::level, "share of five minutes in which tasks waited for a CPU (PSI)",
             [](const Sysroot& root) { return pressure(root, "cpu", "some"); }),
    host_row("memory_pressure_percent", "%", Kind::level,
             "share of five minutes in which tasks waited for memory (PSI)",
             [](const Sysroot& root) { return pressure(root, "memory", "some"); }),
    host_row("io_pressure_percent", "%", Kind::level, "share of five minutes in which tasks waited for I/O (PSI)",
             [](const Sysroot& root) { return pressure(root, "io", "some"); }),
    host_row("edac_corrected", "errors", Kind::errors, "corrected memory errors of all controllers",
             [](const Sysroot& root) { return sum_of(root, "/sys/devices/system/edac/mc", "ce_count"); }),
    host_row("edac_uncorrected", "errors", Kind::errors, "uncorrected memory errors of all controllers",
             [](const Sysroot& root) { return sum_of(root, "/sys/devices/system/edac/mc", "ue_count"); }),
    host_row("cpu_throttles", "events", Kind::errors, "throttling events of cores because of heat",
             [](const Sysroot& root) {
               return sum_of(root, "/sys/devices/system/cpu", "thermal_throttle/core_throttle_count");
             }),
    host_row("cpu_temperature_c", "C", Kind::level, "highest CPU temperature",
             [](const Sysroot& root) { return hottest(root, Chips::processors); }),
    host_row("board_temperature_c", "C", Kind::level, "highest temperature of other sensors, except disks",
             [](const Sysroot& root) { return hottest(root, Chips::others); }),
    host_row("fan_rpm", "rpm", Kind::level, "the slowest fan", slowest_fan),
    host_row("ext4_errors", "errors", Kind::errors, "errors of all ext4 file systems",
             [](const Sysroot& root) { return sum_of(root, "/sys/fs/ext4", "errors_count"); }),
    gpu_row("lost", "", Kind::level, "1: the GPU does not respond",
            [](const Gpu& gpu) -> std::optional<double> {
              return gpu.denied ? std::nullopt : std::optional(gpu.lost || !gpu.error.empty() ? 1.0 : 0.0);
            }),
    gpu_row("temperature_c", "C", Kind::level, "temperature of the GPU",
            [](const Gpu& gpu) { return gpu.temperature_c; }),
    gpu_row("memory_temperature_c", "C", Kind::level, "temperature of GPU memory",
            [](const Gpu& gpu) { return gpu.sensors.memory_temperature_c; }),
    gpu_row("power_w", "W", Kind::level, "power draw", [](const Gpu& gpu) { return gpu.power_w; }),
    gpu_row("sm_clock_mhz", "MHz", Kind::level, "SM clock", [](const Gpu& gpu) { return gpu.clock_mhz; }),
    gpu_row("memory_clock_mhz", "MHz", Kind::level, "memory clock",
            [](const Gpu& gpu) { return gpu.sensors.memory_clock_mhz; }),
    gpu_row("busy_percent", "%", Kind::level, "share of time in which a kernel ran, over at most the last second",
            [](const Gpu& gpu) { return gpu.sensors.busy_percent; }),
    gpu_row("memory_busy_percent", "%", Kind::level,
            "share of time in which memory was read or written, over at most the last second",
            [](const Gpu& gpu) { return gpu.sensors.memory_busy_percent; }),
    gpu_row("memory_used_mib", "MiB", Kind::level, "memory in use",
            [](const Gpu& gpu) -> std::optional<double> {
              const auto bytes = as_double(gpu.memory_used_bytes);
              return bytes ? std::optional(*bytes / (1 << 20)) : std::nullopt;
            }),
    gpu_row("ecc_corrected", "errors", Kind::errors, "corrected memory errors since the driver was loaded",
            [](const Gpu& gpu) { return as_double(gpu.ecc_correctable); }),
    gpu_row("ecc_uncorrected", "errors", Kind::errors, "uncorrected memory errors since the driver was loaded",
            [](const Gpu& gpu) { return as_double(gpu.ecc_uncorrectable); }),
    gpu_row("ecc_corrected_life", "errors", Kind::errors, "corrected memory errors over the life of the GPU",
            [](const Gpu& gpu) { return as_double(gpu.sensors.ecc_correctable); }),
    gpu_row("ecc_uncorrected_life", "errors", Kind::errors, "uncorrected memory errors over the life of the GPU",
            [](const Gpu& gpu) { return as_double(gpu.sensors.ecc_uncorrectable); }),
    gpu_row("remapped_corrected", "rows", Kind::errors, "memory rows remapped because of corrected errors",
            [](const Gpu& gpu) { return as_double(gpu.remapped_correctable); }),
    gpu_row("remapped_uncorrected", "rows", Kind::errors, "memory rows remapped because of uncorrected errors",
            [](const Gpu& gpu) { return as_double(gpu.remapped_uncorrectable); }),
    gpu_row("remap_failed", "", Kind::errors, "1: a row could not be remapped",
            [](const Gpu& gpu) { return as_double(gpu.remap_failed); }),
    gpu_row("retired_corrected", "pages", Kind::errors, "pages of memory retired for corrected errors, before Ampere",
            [](const Gpu& gpu) { return as_double(gpu.sensors.retired_pages_correctable); }),
    gpu_row("retired_uncorrected", "pages", Kind::errors, "pages retired for uncorrected errors, before Ampere",
            [](const Gpu& gpu) { return as_double(gpu.sensors.retired_pages_uncorrectable); }),
    gpu_row("pcie_replays", "packets", Kind::errors, "PCIe replays",
            [](const Gpu& gpu) { return as_double(gpu.sensors.pcie_replays); }),
    gpu_row("pcie_width", "lanes", Kind::level, "PCIe lanes in use",
            [](const Gpu& gpu) { return as_double(gpu.pcie_width); }),
    gpu_row("nvlinks_active", "links", Kind::level, "NVLinks that are up",
            [](const Gpu& gpu) { return as_double(gpu.nvlinks_active); }),
    gpu_row("slowed_down", "", Kind::level, "1: hardware slowdown because of heat or power",
            [](const Gpu& gpu) -> std::optional<double> {
              constexpr std::uint64_t kSlow =
                  nvml::kHwSlowdown | nvml::kHwThermalSlowdown | nvml::kHwPowerBrakeSlowdown;
              if (!gpu.clocks_event_reasons) return std::nullopt;
              return (*gpu.clocks_event_reasons & kSlow) != 0 ? 1.0 : 0.0;
            }),
    gpu_row("throttle_reasons", "bits", Kind::level, "reasons that limit the clock: nvmlClocksEventReasons of NVML",
            [](const Gpu& gpu) { return as_double(gpu.clocks_event_reasons); }),
    net_row("speed_mbps", "Mbit/s", Kind::level, "speed of the link", "speed"),
    net_row("carrier_changes", "events", Kind::errors, "number of times the link went up or down", "carrier_changes"),
    net_row("rx_bytes", "B", Kind::counter, "data received", "statistics/rx_bytes"),
    net_row("tx_bytes", "B", Kind::counter, "data sent", "statistics/tx_bytes"),
    net_row("rx_errors", "frames", Kind::errors, "frames received damaged", "statistics/rx_errors"),
    net_row("rx_crc_errors", "frames", Kind::errors, "frames with a wrong checksum", "statistics/rx_crc_errors"),
    net_row("tx_errors", "frames", Kind::errors, "frames that could not be sent", "statistics/tx_errors"),
    net_row("rx_dropped", "frames", Kind::counter, "dropped frames, usually because of load", "statistics/rx_dropped"),
    ib_row("link_downed", "events", Kind::errors, "number of times the link went down", "counters/link_downed"),
    ib_row("link_error_recovery", "events", Kind::errors, "number of times the link recovered from errors",
           "counters/link_error_recovery"),
    ib_row("symbol_errors", "symbols", Kind::errors, "symbol errors on the wire", "counters/symbol_error"),
    ib_row("integrity_errors", "events", Kind::errors, "local link integrity errors",
           "counters/local_link_integrity_errors"),
    ib_row("rx_errors", "packets", Kind::errors, "packets received damaged", "counters/port_rcv_errors"),
    ib_row("rx_words", "4 B", Kind::counter, "data received", "counters/port_rcv_data"),
    ib_row("tx_words", "4 B", Kind::counter, "data sent", "counters/port_xmit_data"),
    ib_row("tx_waits", "ticks", Kind::counter, "time in which the port had data but could not send",
           "counters/port_xmit_wait"),
    disk_row("io_errors", "commands", Kind::errors, "commands that ended in an error (SCSI, SATA)", "device/ioerr_cnt"),
    disk_row("temperature_c", "C", Kind::level, "temperature of an NVMe disk", "temp1_input", 1e-3),
};

}  // namespace

std::span<const ColumnRow> telemetry_columns() { return kColumnRows; }

std::string device_kind(std::string_view device) {
  if (device.empty()) return "host";
  const std::size_t slash = device.find('/');
  if (slash != std::string_view::npos) return std::string(device.substr(0, slash));
  return std::string(device.substr(0, device.find_first_of("0123456789")));
}

std::string log_column(std::string_view code) {
  std::string name = std::string(kLogPrefix) + std::string(code);
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

std::pair<std::string_view, ColumnKind> column_of(std::string_view device, std::string_view name) {
  if (name.starts_with(kLogPrefix)) return {"lines", Kind::errors};
  if (name == kXids) return {"lines", Kind::counter};  // users' programs cause most of them
  const std::string kind = device_kind(device);
  const auto found = std::find_if(std::begin(kColumnRows), std::end(kColumnRows),
                                  [&](const ColumnRow& row) { return row.device == kind && row.name == name; });
  return found == std::end(kColumnRows) ? std::pair(std::string_view(), Kind::level)
                                        : std::pair(found->unit, found->kind);
}

std::vector<std::pair<std::string, std::string>> column_terms() {
  std::vector<std::pair<std::string, std::string>> terms;
  for (const ColumnRow& row : kColumnRows) {
    terms.emplace_back(fmt::format("{} {}", row.device, row.name),
                       fmt::format("{}{}{}.", row.doc, row.unit.empty() ? "" : ", in ", row.unit));
  }
  terms.emplace_back(
      "host log_CODE",
      "lines of the kernel log since boot that the check CODE counts; the dot of the code is written as _.");
  terms.emplace_back("gpu xids",
                     "Xids of this GPU in the kernel log since boot, including those caused by user programs.");
  terms.emplace_back("gpu last_xid", "number of the last Xid.");
  return terms;
}

}  // namespace ms::health
