// The GPUs as the driver reports them, queried once per run through NVML, which is opened by absolute path at run time.
// A plain struct: the checks are functions of it, and tests fill it in by hand or through a fake library.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ms::health {

// As NVML numbers them (nvmlDeviceGpuRecoveryAction_t).
enum class RecoveryAction : int { none = 0, gpu_reset = 1, node_reboot = 2, drain_p2p = 3, drain_and_reset = 4 };

// The values that only a history needs; a prolog does not ask for them. nullopt: this GPU or driver does not say.
struct GpuSensors {
  std::optional<double> memory_temperature_c, memory_clock_mhz;
  std::optional<double> busy_percent, memory_busy_percent;
  std::optional<std::uint64_t> ecc_uncorrectable, ecc_correctable;  // of the GPU's life
  std::optional<int> retired_pages_correctable, retired_pages_uncorrectable, pcie_replays;
};

// nullopt: this GPU or driver does not say.
struct Gpu {
  int index = 0;
  std::string uuid;
  std::string name;
  std::string pci;      // "0000:17:00.0", lower case
  bool lost = false;    // the driver answers "GPU is lost"; nothing else is known then
  std::string error;    // why it does not answer otherwise ("Insufficient External Power"); empty: it does, or is lost
  bool denied = false;  // it does not answer because we may not ask: that says nothing about the GPU
  std::optional<std::uint64_t> ecc_uncorrectable;  // volatile
  std::optional<std::uint64_t> ecc_correctable;    // volatile
  std::optional<int> remapped_correctable, remapped_uncorrectable;
  std::optional<bool> remap_pending, remap_failed;
  std::optional<int> retired_pages_pending;
  std::optional<RecoveryAction> recovery_action;
  std::optional<int> pcie_width, pcie_width_max;
  std::optional<int> nvlinks_active, nvlinks_total;
  std::optional<std::uint64_t> clocks_event_reasons;
  std::optional<double> temperature_c;
  std::optional<std::uint64_t> memory_used_bytes, memory_total_bytes;
  std::vector<int> processes;                      // that use its memory, where it names them
  std::optional<bool> persistent;                  // the driver stays loaded while no process uses the GPU
  std::optional<std::uint64_t> nvlink_errors;      // of all links: replays, recoveries, CRC and ECC errors
  std::string vbios, inforom;                      // versions
  std::optional<bool> inforom_valid;               // the checksums of its configuration agree
  std::optional<bool> fabric_ready;                // it has joined the fabric of NVSwitches; nullopt: it needs none
  std::optional<double> clock_mhz, clock_max_mhz;  // of the multiprocessors
  std::optional<double> power_w, power_limit_w;
  GpuSensors sensors;  // only where they were asked for
};

struct GpuSnapshot {
  bool library_found = false;  // the file is there
  std::string error;           // why there is no answer ("nvmlInit_v2: Driver Not Loaded"); empty: answered
  std::string driver_version;
  std::vector<Gpu> gpus;
};

// Where the library is: in distributions, Debian's family on x86 and Arm, and the others; in containers and virtual
// machines that are given the host's driver.
inline constexpr std::string_view kNvmlDirectories[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                                                        "/usr/lib64", "/usr/local/nvidia/lib64"};

enum class Ask { health, sensors_too };

// An empty path: the first of the directories that has the library. Never throws: what went wrong is in `error`. Never
// calls back into Slurm or the user's environment.
GpuSnapshot read_gpus(const std::string& library_path, std::span<const std::string_view> directories = kNvmlDirectories,
                      Ask ask = Ask::health);

}  // namespace ms::health
