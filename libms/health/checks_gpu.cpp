// The checks of NVIDIA GPUs: functions of what NVML answered (gpus.h), of the PCI bus in sysfs and of Xids in the
// kernel's log. A GPU or driver that does not tell a value is not judged by it.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "health/checks.h"
#include "health/gres_conf.h"
#include "health/nvml.h"
#include "health/scan.h"
#include "health/xid.h"

namespace ms::health {
namespace {

constexpr std::int64_t kNvidia = 0x10de;
constexpr std::int64_t kDisplayClass = 0x03;  // VGA (0x0300) and 3D (0x0302) controllers
constexpr std::uint64_t kIdleMemoryBytes = std::uint64_t{1} << 30;
constexpr double kMib = 1 << 20;

// The GPUs that NVIDIA's driver has or should have, by PCI address: in this order NVML numbers them. Virtual functions
// and what another driver took (vfio-pci) are not this node's.
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

// "/dev/nvidia3", and not "/dev/nvidia-uvm" or another vendor's device.
bool is_nvidia_device(std::string_view path) {
  Scan scan(path.substr(path.rfind('/') + 1));
  return scan.literal("nvidia") && scan.number() && scan.at_end();
}

std::size_t gpus_in_gres_conf(const Evidence& evidence) {
  const std::string& path = evidence.policy().paths.gres_conf;
  const std::optional<std::string> text = path.starts_with('/') ? evidence.root().read(path) : std::nullopt;
  std::set<std::string> devices;
  for (const GresLine& line : parse_gres_conf(text.value_or(""), node_name(evidence.root()))) {
    if (line.name != "gpu") continue;
    std::copy_if(line.files.begin(), line.files.end(), std::inserter(devices, devices.end()), is_nvidia_device);
  }
  return devices.size();
}

struct Expected {
  std::size_t count = 0;
  std::string by;  // who says so
};

Expected expected_gpus(const Evidence& evidence) {
  if (evidence.policy().expect.gpus >= 0) {
    return {static_cast<std::size_t>(evidence.policy().expect.gpus), "expect.gpus"};
  }
  if (const std::size_t count = gpus_in_gres_conf(evidence); count > 0) return {count, "gres.conf"};
  return {gpus_on_bus(evidence.root()).size(), "the PCI bus"};
}

// Why a check of single GPUs has nothing to look at; nullopt: there are some.
std::optional<Result> nothing_to_ask(Evidence& evidence) {
  if (!evidence.gpus().gpus.empty()) return std::nullopt;
  if (expected_gpus(evidence).count == 0) return skipped("no NVIDIA GPU here and none is expected");
  return skipped("the driver names no GPU: see gpu.driver and gpu.count");
}

Finding about(const Gpu& gpu, Severity severity, std::string message) {
  return {.severity = severity, .entity = fmt::format("gpu {}", gpu.index), .message = std::move(message)};
}

Finding about(const Gpu& gpu, Severity severity, std::string message, double measured, double limit, std::string unit) {
  Finding finding = about(gpu, severity, std::move(message));
  finding.measured = measured;
  finding.limit = limit;
  finding.unit = std::move(unit);
  return finding;
}

// Runs `look` on every GPU; `tells` is whether it knows what `look` looks at.
template <class Tells, class Look>
Result each_gpu(Evidence& evidence, std::string_view what, Tells tells, Look look) {
  if (std::optional<Result> nothing = nothing_to_ask(evidence)) return *nothing;
  std::vector<Finding> findings;
  std::size_t told = 0;
  for (const Gpu& gpu : evidence.gpus().gpus) {
    if (!tells(gpu)) continue;
    ++told;
    look(gpu, findings);
  }
  if (told == 0) return skipped(fmt::format("no GPU tells its {}", what));
  return judged(std::move(findings), fmt::format("{} of {}", told, plural(evidence.gpus().gpus.size(), "GPU")));
}

}  // namespace

Result check_gpu_driver(Evidence& evidence) {
  const std::size_t on_bus = gpus_on_bus(evidence.root()).size();
  const Expected expected = expected_gpus(evidence);
  if (evidence.policy().expect.gpus == 0) return skipped("expect.gpus is 0");
  if (on_bus == 0 && expected.count == 0) return skipped("no NVIDIA GPU here and none is expected");
  const GpuSnapshot& gpus = evidence.gpus();
  if (gpus.error.empty()) return passed("driver " + gpus.driver_version);
  if (on_bus == 0 && !gpus.library_found) {
    return skipped(fmt::format("{}, and the PCI bus has no NVIDIA GPU", gpus.error));
  }
  return judged({{.severity = Severity::critical,
                  .entity = "driver",
                  .message = fmt::format("no answer about {}: {}", plural(std::max(on_bus, expected.count), "GPU"),
                                         gpus.error)}});
}

Result check_gpu_count(Evidence& evidence) {
  const Expected expected = expected_gpus(evidence);
  if (expected.count == 0) return skipped("no NVIDIA GPU is expected here");
  const GpuSnapshot& gpus = evidence.gpus();
  // Without the library nobody was asked: a wrong path in the policy must not look like a node without GPUs.
  if (!gpus.library_found) return skipped(gpus.error);
  const std::size_t count = gpus.gpus.size();
  if (count >= expected.count)
    return passed(fmt::format("{}, {} expected by {}", plural(count, "GPU"), expected.count, expected.by));
  return judged({{.severity = Severity::critical,
                  .entity = "node",
                  .message = fmt::format("{} of {} (by {}) answer{}", count, plural(expected.count, "GPU"), expected.by,
                                         gpus.error.empty() ? "" : ": " + gpus.error),
                  .measured = static_cast<double>(count),
                  .limit = static_cast<double>(expected.count),
                  .unit = "GPUs"}});
}

Result check_gpu_lost(Evidence& evidence) {
  return each_gpu(
      evidence, "state", [](const Gpu& gpu) { return !gpu.denied; },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        if (gpu.lost) {
          findings.push_back(about(gpu, Severity::critical, "the driver lost it (it has fallen off the bus)"));
        } else if (!gpu.error.empty()) {
          findings.push_back(about(gpu, Severity::critical, "does not answer: " + gpu.error));
        }
      });
}

Result check_gpu_ecc(Evidence& evidence) {
  const std::int64_t most = evidence.policy().limits.ecc_correctable;
  return each_gpu(
      evidence, "ECC errors", [](const Gpu& gpu) { return gpu.ecc_uncorrectable || gpu.ecc_correctable; },
      [&](const Gpu& gpu, std::vector<Finding>& findings) {
        if (const std::uint64_t count = gpu.ecc_uncorrectable.value_or(0); count > 0) {
          findings.push_back(about(gpu, Severity::critical,
                                   plural(count, "uncorrectable memory error") + " since the driver was loaded",
                                   static_cast<double>(count), 0, "errors"));
        }
        if (const std::uint64_t count = gpu.ecc_correctable.value_or(0);
            most >= 0 && count > static_cast<std::uint64_t>(most)) {
          findings.push_back(about(gpu, Severity::warning,
                                   plural(count, "corrected memory error") + " since the driver was loaded",
                                   static_cast<double>(count), static_cast<double>(most), "errors"));
        }
      });
}

Result check_gpu_remap(Evidence& evidence) {
  return each_gpu(
      evidence, "remapped rows or retired pages",
      [](const Gpu& gpu) { return gpu.remap_failed || gpu.remap_pending || gpu.retired_pages_pending; },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        const int rows = gpu.remapped_uncorrectable.value_or(0) + gpu.remapped_correctable.value_or(0);
        if (gpu.remap_failed.value_or(false)) {
          findings.push_back(about(gpu, Severity::critical, fmt::format("a row could not be remapped ({} are)", rows)));
          findings.back().remedy = "Run NVIDIA's field diagnostic: this qualifies the GPU for replacement.";
        }
        if (gpu.remap_pending.value_or(false)) {
          findings.push_back(about(gpu, Severity::warning, fmt::format("a row waits to be remapped ({} are)", rows)));
        }
        if (gpu.retired_pages_pending.value_or(0) > 0) {
          findings.push_back(about(gpu, Severity::warning, "a memory page waits to be retired"));
        }
      });
}

Result check_gpu_recovery(Evidence& evidence) {
  return each_gpu(
      evidence, "recovery action (drivers from 570 on do)",
      [](const Gpu& gpu) { return gpu.recovery_action.has_value(); },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        if (*gpu.recovery_action == RecoveryAction::none) return;
        const RecoveryAdvice advice = advice_for(*gpu.recovery_action);
        findings.push_back(about(gpu, advice.severity, fmt::format("the driver asks for {}", advice.words)));
      });
}

Result check_gpu_xid(Evidence& evidence) {
  const KernelLog& log = evidence.kernel_log();
  if (!log.error.empty()) return skipped(log.error);
  const std::vector<std::string> on_bus = gpus_on_bus(evidence.root());
  const auto entity_at = [&](const std::string& pci) {
    const auto found = std::find(on_bus.begin(), on_bus.end(), pci);
    return found == on_bus.end() ? "gpu " + pci : fmt::format("gpu {} ({})", found - on_bus.begin(), pci);
  };
  LogTally tally;
  std::map<std::string, XidLine> last_action;  // by PCI address: a later Xid 154 takes back an earlier one
  std::size_t seen = 0;
  for (const KernelLine& line : log.lines) {
    const std::optional<XidLine> xid = parse_xid(line.text);
    if (!xid) continue;
    ++seen;
    if (xid->number == 154) {
      last_action[xid->pci] = *xid;
      continue;
    }
    const XidRow* row = find_xid(xid->number);
    if (row != nullptr && (row->user_can_cause || row->severity == Severity::note)) continue;
    tally.add(row ? row->severity : Severity::warning, entity_at(xid->pci),
              fmt::format("Xid {}: {}", xid->number, row ? row->meaning : "not known to us"));
  }
  for (const auto& [pci, xid] : last_action) {
    if (xid.action == RecoveryAction::none) continue;
    const RecoveryAdvice advice = xid.action ? advice_for(*xid.action) : RecoveryAdvice{Severity::warning, "something"};
    tally.add(advice.severity, entity_at(pci), fmt::format("Xid 154: the driver asks for {}", advice.words));
  }
  std::vector<Finding> findings = tally.findings();
  if (findings.empty() && seen == 0 && on_bus.empty()) return skipped("no NVIDIA GPU here, and no Xid in the log");
  return judged(std::move(findings), seen == 0 ? "no Xid" : "nothing against a GPU in " + plural(seen, "Xid"));
}

Result check_gpu_pcie(Evidence& evidence) {
  return each_gpu(
      evidence, "PCIe width", [](const Gpu& gpu) { return gpu.pcie_width && gpu.pcie_width_max; },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        const int width = *gpu.pcie_width, most = *gpu.pcie_width_max;
        if (width >= most) return;
        findings.push_back(about(gpu, 2 * width <= most ? Severity::critical : Severity::warning,
                                 fmt::format("its PCIe link runs with {} of {} lanes", width, most), width, most,
                                 "lanes"));
      });
}

Result check_gpu_nvlink(Evidence& evidence) {
  const std::int64_t wanted = evidence.policy().expect.nvlinks_per_gpu;
  int best = 0;  // of this node's GPUs
  for (const Gpu& gpu : evidence.gpus().gpus) best = std::max(best, gpu.nvlinks_active.value_or(0));
  if (wanted < 0 && best == 0 && !nothing_to_ask(evidence)) {
    return skipped("no NVLink is active on any GPU and expect.nvlinks_per_gpu does not ask for them");
  }
  return each_gpu(
      evidence, "NVLinks", [&](const Gpu& gpu) { return gpu.nvlinks_active && gpu.nvlinks_total; },
      [&](const Gpu& gpu, std::vector<Finding>& findings) {
        const int active = *gpu.nvlinks_active, total = *gpu.nvlinks_total;
        const std::int64_t limit = wanted >= 0 ? wanted : total;
        if (active >= limit) return;
        // Boards exist that use only some of their links, all alike: without an expectation that is worth a warning.
        const bool alike = wanted < 0 && active == best;
        findings.push_back(
            about(gpu, alike ? Severity::warning : Severity::critical,
                  fmt::format("{} of {} NVLinks are active{}", active, limit, alike ? ", as on the other GPUs" : ""),
                  active, static_cast<double>(limit), "links"));
        if (alike) findings.back().remedy = "If this board has no more, set expect.nvlinks_per_gpu.";
      });
}

Result check_gpu_thermal(Evidence& evidence) {
  return each_gpu(
      evidence, "reasons for lower clocks", [](const Gpu& gpu) { return gpu.clocks_event_reasons.has_value(); },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        std::vector<std::string_view> reasons;
        const std::uint64_t bits = *gpu.clocks_event_reasons;
        if (bits & nvml::kHwThermalSlowdown) reasons.push_back("it is too hot");
        if (bits & nvml::kHwPowerBrakeSlowdown) reasons.push_back("the power brake of the machine is asserted");
        if (reasons.empty() && bits & nvml::kHwSlowdown) reasons.push_back("the hardware protects itself");
        if (reasons.empty()) return;
        findings.push_back(about(gpu, Severity::warning, fmt::format("slowed down: {}", fmt::join(reasons, ", "))));
        findings.back().measured = gpu.temperature_c;
        if (gpu.temperature_c) findings.back().unit = "C";
      });
}

Result check_gpu_busy(Evidence& evidence) {
  return each_gpu(
      evidence, "memory in use", [](const Gpu& gpu) { return gpu.memory_used_bytes.has_value(); },
      [](const Gpu& gpu, std::vector<Finding>& findings) {
        const std::uint64_t used = *gpu.memory_used_bytes;
        if (used <= kIdleMemoryBytes) return;
        findings.push_back(about(gpu, Severity::warning,
                                 fmt::format("{:.0f} MiB of its memory are in use", static_cast<double>(used) / kMib),
                                 static_cast<double>(used) / kMib, static_cast<double>(kIdleMemoryBytes) / kMib,
                                 "MiB"));
      });
}

}  // namespace ms::health
