#include "health/checks/gpu_common.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "base/text.h"
#include "health/evidence/gres_conf.h"
#include "health/evidence/scan.h"

namespace ms::health {
namespace {

constexpr std::int64_t kNvidia = 0x10de;
constexpr std::int64_t kDisplayClass = 0x03;  // VGA (0x0300) and 3D (0x0302) controllers

// "/dev/nvidia3", and not "/dev/nvidia-uvm" or another vendor's device.
bool is_nvidia_device(std::string_view path) {
  Scan scan(path.substr(path.rfind('/') + 1));
  return scan.literal("nvidia") && scan.number() && scan.at_end();
}

std::size_t gpus_in(const GresConf& conf) {
  std::set<std::string> devices;
  for (const GresLine& line : conf.lines) {
    if (line.name != "gpu") continue;
    std::copy_if(line.files.begin(), line.files.end(), std::inserter(devices, devices.end()), is_nvidia_device);
  }
  return devices.size();
}

// By the driver's own word: NVreg_ExcludedGpus.
bool is_excluded(const Sysroot& root, const std::string& address) {
  const auto facts = root.read(fmt::format("/proc/driver/nvidia/gpus/{}/information", address)).value_or("");
  return std::ranges::any_of(split(facts, '\n'), [](const std::string& line) {
    return line.starts_with("GPU Excluded:") && line.ends_with("Yes");
  });
}

}  // namespace

std::vector<std::string> gpus_on_bus(const Sysroot& root) {
  const std::string devices = "/sys/bus/pci/devices";
  std::vector<std::string> found;
  for (const std::string& address : root.list(devices)) {
    const std::string device = devices + "/" + address;
    if (root.read_int(device + "/vendor") != kNvidia) continue;
    if (root.read_int(device + "/class").value_or(0) >> 16 != kDisplayClass || root.exists(device + "/physfn"))
      continue;
    const std::string driver = root.link_name(device + "/driver");
    if (driver.empty() || driver == "nvidia") found.push_back(address);
  }
  return found;
}

Expected expected_gpus(const Evidence& evidence) {
  if (evidence.policy().expect.gpus >= 0) {
    return {static_cast<std::size_t>(evidence.policy().expect.gpus), "expect.gpus", true};
  }
  const Sysroot& root = evidence.root();
  const auto conf = read_gres_conf(root, evidence.policy().paths.gres_conf, node_name(root)).value_or(GresConf{});
  const std::vector<std::string> there = gpus_on_bus(root);
  const auto excluded = std::ranges::count_if(there, [&](const std::string& each) { return is_excluded(root, each); });
  const std::size_t listed = gpus_in(conf), on_bus = there.size() - static_cast<std::size_t>(excluded);
  // With AutoDetect, the lines in gres.conf add to what Slurm detects and do not bound it.
  if (listed > 0 && (!conf.autodetect || listed > on_bus)) return {listed, "gres.conf", true};
  return {on_bus, "the PCI bus"};
}

std::optional<Result> nothing_to_ask(Evidence& evidence) {
  if (!evidence.gpus().gpus.empty()) return std::nullopt;
  if (expected_gpus(evidence).count == 0) return skipped("no NVIDIA GPU here and none is expected");
  return skipped("the driver names no GPU: see gpu.driver and gpu.count");
}

Finding about(const Gpu& gpu, Severity severity, std::string message, std::optional<double> measured,
              std::optional<double> limit, std::string unit) {
  return about(fmt::format("gpu {}", gpu.index), severity, std::move(message), measured, limit, std::move(unit));
}

}  // namespace ms::health
