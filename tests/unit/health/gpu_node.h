// A node with healthy GPUs, for tests to break: what NVML says is filled in by hand, the rest is a fake root.
#pragma once

#include <string>
#include <vector>

#include "../base/fake_root.h"
#include "health/checks/registry.h"

namespace ms::health {

inline Gpu healthy_gpu(int index) {
  Gpu gpu;
  gpu.index = index;
  gpu.uuid = fmt::format("GPU-{}", index);
  gpu.name = "NVIDIA H100 80GB HBM3";
  gpu.pci = fmt::format("0000:{:02x}:00.0", 0x10 + index);
  gpu.ecc_uncorrectable = 0;
  gpu.ecc_correctable = 0;
  gpu.remapped_correctable = 0;
  gpu.remapped_uncorrectable = 0;
  gpu.remap_pending = false;
  gpu.remap_failed = false;
  gpu.recovery_action = RecoveryAction::none;
  gpu.pcie_width = 16;
  gpu.pcie_width_max = 16;
  gpu.nvlinks_active = 18;
  gpu.nvlinks_total = 18;
  gpu.clocks_event_reasons = 0x1;  // idle
  gpu.temperature_c = 34;
  gpu.memory_used_bytes = 0;
  gpu.memory_total_bytes = std::uint64_t{80} << 30;
  gpu.persistent = true;
  gpu.nvlink_errors = 0;
  gpu.vbios = "96.00.89.00.01";
  gpu.inforom = "G520.0200.00.05";
  gpu.inforom_valid = true;
  gpu.fabric_ready = true;
  gpu.clock_mhz = 345;
  gpu.clock_max_mhz = 1980;
  gpu.power_w = 71;
  gpu.power_limit_w = 700;
  return gpu;
}

// What a GPU says that says nothing.
inline Gpu silent_gpu(int index) {
  Gpu gpu;
  gpu.index = index;
  return gpu;
}

// A healthy node with 8 GPUs. Tests break it.
struct GpuNode {
  explicit GpuNode(int gpus = 8) {
    policy.paths.sysroot = fake.directory();
    snapshot.library_found = true;
    snapshot.driver_version = "570.124.06";
    fake.write("/proc/sys/kernel/hostname", "node02.cluster\n");
    fake.write("/dev/kmsg", "");
    for (int index = 0; index < gpus; ++index) {
      plug(fmt::format("0000:{:02x}:00.0", 0x10 + index));
      snapshot.gpus.push_back(healthy_gpu(index));
    }
  }
  void plug(const std::string& address, const char* device_class = "0x030200\n", const char* driver = "nvidia",
            const char* vendor = "0x10de\n") {
    const std::string device = "/sys/bus/pci/devices/" + address;
    fake.write(device + "/vendor", vendor);
    fake.write(device + "/class", device_class);
    if (driver[0] != 0) fake.link(device + "/driver", std::string("../../drivers/") + driver);
  }
  void no_driver(const char* error, bool library = true) {
    snapshot.gpus.clear();
    snapshot.library_found = library;
    snapshot.error = error;
  }
  void log(const std::vector<std::string>& lines) {
    std::string records;
    for (const std::string& line : lines) records += fmt::format("3,{},{},-;{}\n", 1, 1000000, line);
    fake.write("/dev/kmsg", records);
  }
  Result run(std::string_view code, const Counters& before = {}, double now_s = 1e9) const {
    Evidence evidence(policy, now_s, 0, before);
    evidence.set_gpus(snapshot);
    return find_check(passive_checks(), code)->run(evidence);
  }

  FakeRoot fake;
  Policy policy;
  GpuSnapshot snapshot;
};

}  // namespace ms::health
