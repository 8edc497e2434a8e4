// NVML, opened at run time. A function that this driver lacks, or a GPU that does not support it, leaves its value
// empty. A call that hangs is the runner's business: it cuts the lane.
#include "health/evidence/gpus.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/handle.h"
#include "health/evidence/nvml.h"

namespace ms::health {
namespace {

using namespace nvml;

constexpr std::string_view kLibraryName = "libnvidia-ml.so.1";
constexpr unsigned kMaxGpus = 256;  // more than a node has: a count above it is nonsense

struct LibraryTraits {
  using Type = void*;
  static constexpr Type null() { return nullptr; }
  static void destroy(Type library) noexcept { ::dlclose(library); }
};
using Library = Handle<LibraryTraits>;

template <class Function>
Function* find(const Library& library, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(library.get(), name));
}

std::string error_text(const Library& library, Return result) {
  const auto text = find<nvmlErrorString_t>(library, "nvmlErrorString");
  const char* words = text ? text(result) : nullptr;
  return words ? fmt::format("{} (error {})", words, result) : fmt::format("error {}", result);
}

// Asks one GPU, and notices if it is lost or needs a reset on the way: then it is not asked any further.
class Asker {
 public:
  Asker(const Library& library, Device device, Gpu& gpu) : library_(library), device_(device), gpu_(gpu) {}

  void ask(Ask what) {
    identity();
    memory_errors();
    links();
    state();
    if (what == Ask::sensors_too) sensors();
  }

 private:
  bool usable() const { return !gpu_.lost && gpu_.error.empty(); }
  // Whether NAME is there and answers.
  template <class Function, class... Arguments>
  bool call(const char* name, Arguments... arguments) {
    if (!usable()) return false;
    const auto function = find<Function>(library_, name);
    return function && took(function(device_, arguments...));
  }
  bool took(Return result) {
    if (result == kGpuIsLost) gpu_.lost = true;
    if (result == kResetRequired) gpu_.error = error_text(library_, result);
    return result == kSuccess;
  }

  std::optional<int> number(const char* name) {
    unsigned value = 0;
    return call<nvmlDeviceGetUnsigned_t>(name, &value) ? std::optional(static_cast<int>(value)) : std::nullopt;
  }
  std::optional<double> clock(const char* name, int which) {
    unsigned mhz = 0;
    return call<nvmlDeviceGetClock_t>(name, which, &mhz) ? std::optional<double>(mhz) : std::nullopt;
  }
  std::optional<double> watts(const char* name) {
    const std::optional<int> milliwatts = number(name);
    return milliwatts ? std::optional(*milliwatts / 1000.0) : std::nullopt;
  }
  std::string text(const char* name) {
    std::array<char, kNameBytes> buffer{};
    const bool told = call<nvmlDeviceGetText_t>(name, buffer.data(), static_cast<unsigned>(buffer.size() - 1));
    return told ? buffer.data() : std::string();
  }
  std::optional<std::uint64_t> ecc(int type, int since = kVolatile) {
    unsigned long long count = 0;
    const bool told = call<nvmlDeviceGetTotalEccErrors_t>("nvmlDeviceGetTotalEccErrors", type, since, &count);
    return told ? std::optional<std::uint64_t>(count) : std::nullopt;
  }
  std::optional<int> field(unsigned id) {
    FieldValue value{};
    value.field = id;
    if (!call<nvmlDeviceGetFieldValues_t>("nvmlDeviceGetFieldValues", 1, &value) || !took(value.result)) return {};
    switch (value.type) {
      case kUnsignedInt: return static_cast<int>(value.value.ui);
      case kUnsignedLong: return static_cast<int>(value.value.ul);
      case kUnsignedLongLong: return static_cast<int>(value.value.ull);
      case kSignedLongLong: return static_cast<int>(value.value.sll);
      case kSignedInt: return value.value.si;
      case kUnsignedShort: return value.value.us;
      case kDouble: break;
    }
    return std::nullopt;
  }

  void identity() {
    PciInfo pci{};
    if (call<nvmlDeviceGetPciInfo_v3_t>("nvmlDeviceGetPciInfo_v3", &pci)) {
      gpu_.pci = fmt::format("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device);
    }
    gpu_.uuid = text("nvmlDeviceGetUUID");
    gpu_.name = text("nvmlDeviceGetName");
    gpu_.vbios = text("nvmlDeviceGetVbiosVersion");
    gpu_.inforom = text("nvmlDeviceGetInforomImageVersion");
    if (const auto validate = find<nvmlDeviceValidateInforom_t>(library_, "nvmlDeviceValidateInforom")) {
      const Return result = usable() ? validate(device_) : kNotSupported;
      if (took(result) || result == kCorruptedInforom) gpu_.inforom_valid = result == kSuccess;
    }
    if (const std::optional<int> mode = number("nvmlDeviceGetPersistenceMode")) gpu_.persistent = *mode != 0;
  }

  void memory_errors() {
    gpu_.ecc_uncorrectable = ecc(kUncorrected);
    gpu_.ecc_correctable = ecc(kCorrected);
    unsigned correctable = 0, uncorrectable = 0, pending = 0, failed = 0;
    if (call<nvmlDeviceGetRemappedRows_t>("nvmlDeviceGetRemappedRows", &correctable, &uncorrectable, &pending,
                                          &failed)) {
      gpu_.remapped_correctable = static_cast<int>(correctable);
      gpu_.remapped_uncorrectable = static_cast<int>(uncorrectable);
      gpu_.remap_pending = pending != 0;
      gpu_.remap_failed = failed != 0;
    }
    gpu_.retired_pages_pending = number("nvmlDeviceGetRetiredPagesPendingStatus");
  }

  void links() {
    gpu_.pcie_width = number("nvmlDeviceGetCurrPcieLinkWidth");
    gpu_.pcie_width_max = number("nvmlDeviceGetMaxPcieLinkWidth");
    const int count = std::clamp(field(kFieldNvlinkCount).value_or(kMaxNvlinks), 0, static_cast<int>(kMaxNvlinks));
    int total = 0, active = 0;
    for (int link = 0; link < count; ++link) {
      int state = 0;
      if (!call<nvmlDeviceGetNvLinkState_t>("nvmlDeviceGetNvLinkState", static_cast<unsigned>(link), &state)) continue;
      ++total;
      if (state != 0) ++active;
      for (int kind = 0; kind < kNvlinkErrors; ++kind) {
        unsigned long long errors = 0;
        if (call<nvmlDeviceGetNvLinkErrorCounter_t>("nvmlDeviceGetNvLinkErrorCounter", static_cast<unsigned>(link),
                                                    kind, &errors)) {
          gpu_.nvlink_errors = gpu_.nvlink_errors.value_or(0) + errors;
        }
      }
    }
    if (total > 0) {
      gpu_.nvlinks_total = total;
      gpu_.nvlinks_active = active;
    }
    FabricInfo fabric{};
    if (call<nvmlDeviceGetGpuFabricInfo_t>("nvmlDeviceGetGpuFabricInfo", &fabric) && fabric.state != kFabricNone) {
      gpu_.fabric_ready = fabric.state == kFabricCompleted && fabric.status == kSuccess;
    }
  }

  void state() {
    if (const std::optional<int> action = field(kFieldRecoveryAction)) {
      gpu_.recovery_action = static_cast<RecoveryAction>(*action);
    }
    unsigned long long reasons = 0;
    if (call<nvmlDeviceGetClocksEventReasons_t>("nvmlDeviceGetCurrentClocksEventReasons", &reasons) ||
        call<nvmlDeviceGetClocksEventReasons_t>("nvmlDeviceGetCurrentClocksThrottleReasons", &reasons)) {
      gpu_.clocks_event_reasons = reasons;
    }
    unsigned degrees = 0;
    if (call<nvmlDeviceGetTemperature_t>("nvmlDeviceGetTemperature", kTemperatureGpu, &degrees)) {
      gpu_.temperature_c = degrees;
    }
    gpu_.clock_mhz = clock("nvmlDeviceGetClockInfo", kClockSm);
    gpu_.clock_max_mhz = clock("nvmlDeviceGetMaxClockInfo", kClockSm);
    gpu_.power_w = watts("nvmlDeviceGetPowerUsage");
    gpu_.power_limit_w = watts("nvmlDeviceGetEnforcedPowerLimit");
    MemoryV2 memory{};
    memory.version = kMemoryV2;
    Memory coarse{};  // counts as used what the driver reserves, which can be hundreds of MiB
    if (call<nvmlDeviceGetMemoryInfo_v2_t>("nvmlDeviceGetMemoryInfo_v2", &memory)) {
      gpu_.memory_used_bytes = memory.used;
      gpu_.memory_total_bytes = memory.total;
    } else if (call<nvmlDeviceGetMemoryInfo_t>("nvmlDeviceGetMemoryInfo", &coarse)) {
      gpu_.memory_used_bytes = coarse.used;
      gpu_.memory_total_bytes = coarse.total;
    }
    if (gpu_.memory_used_bytes.value_or(0) > 0) processes();
  }

  void processes() {
    for (const char* name : {"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"}) {
      std::array<ProcessInfo, kMaxProcesses> running{};
      unsigned count = kMaxProcesses;
      if (!call<nvmlDeviceGetComputeRunningProcesses_t>(name, &count, running.data())) continue;
      for (unsigned i = 0; i < std::min(count, kMaxProcesses); ++i) {
        gpu_.processes.push_back(static_cast<int>(running[i].pid));
      }
      return;
    }
  }

  void sensors() {
    GpuSensors& sensors = gpu_.sensors;
    sensors.memory_temperature_c = field(kFieldMemoryTemperature);
    sensors.memory_clock_mhz = clock("nvmlDeviceGetClockInfo", kClockMemory);
    Utilization busy{};
    if (call<nvmlDeviceGetUtilizationRates_t>("nvmlDeviceGetUtilizationRates", &busy)) {
      sensors.busy_percent = busy.gpu;
      sensors.memory_busy_percent = busy.memory;
    }
    sensors.ecc_uncorrectable = ecc(kUncorrected, kAggregate);
    sensors.ecc_correctable = ecc(kCorrected, kAggregate);
    sensors.retired_pages_correctable = field(kFieldRetiredCorrected);
    sensors.retired_pages_uncorrectable = field(kFieldRetiredUncorrected);
    sensors.pcie_replays = number("nvmlDeviceGetPcieReplayCounter");
  }

  const Library& library_;
  Device device_;
  Gpu& gpu_;
};

Gpu ask_gpu(const Library& library, nvmlDeviceGetHandleByIndex_v2_t* handle, unsigned index, Ask ask) {
  Gpu gpu;
  gpu.index = static_cast<int>(index);
  Device device = nullptr;
  const Return result = handle(index, &device);
  if (result == kSuccess) {
    Asker(library, device, gpu).ask(ask);
  } else if (result == kGpuIsLost) {
    gpu.lost = true;
  } else {
    gpu.error = error_text(library, result);
    gpu.denied = result == kNoPermission || result == kOperatingSystem;
  }
  return gpu;
}

void ask_all(const Library& library, GpuSnapshot& snapshot, Ask ask) {
  const auto count_of = find<nvmlDeviceGetCount_v2_t>(library, "nvmlDeviceGetCount_v2");
  const auto handle = find<nvmlDeviceGetHandleByIndex_v2_t>(library, "nvmlDeviceGetHandleByIndex_v2");
  if (!count_of || !handle) {
    snapshot.error = "it is no NVML, or one older than driver 410: functions are missing";
    return;
  }
  if (const auto version = find<nvmlSystemGetDriverVersion_t>(library, "nvmlSystemGetDriverVersion")) {
    std::array<char, kNameBytes> text{};
    if (version(text.data(), text.size() - 1) == kSuccess) snapshot.driver_version = text.data();
  }
  unsigned count = 0;
  if (const Return result = count_of(&count); result != kSuccess) {
    snapshot.error = "nvmlDeviceGetCount_v2: " + error_text(library, result);
    return;
  }
  for (unsigned index = 0; index < std::min(count, kMaxGpus); ++index) {
    snapshot.gpus.push_back(ask_gpu(library, handle, index, ask));
  }
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Sets library_found, or says what was looked for; empty then.
std::string find_nvml(const std::string& wanted, std::span<const std::string_view> directories, GpuSnapshot& snapshot) {
  if (!wanted.empty() && !wanted.starts_with('/')) {
    snapshot.error = fmt::format("\"{}\" is no absolute path", wanted);
    return {};
  }
  std::vector<std::string> places = {wanted};
  if (wanted.empty()) {
    places.clear();
    for (const std::string_view directory : directories)
      places.push_back(fmt::format("{}/{}", directory, kLibraryName));
  }
  const auto found = std::find_if(places.begin(), places.end(), exists);
  snapshot.library_found = found != places.end();
  if (snapshot.library_found) return *found;
  snapshot.error = wanted.empty() ? fmt::format("there is no {} in {}", kLibraryName, fmt::join(directories, ", "))
                                  : "there is no " + wanted;
  return {};
}

}  // namespace

GpuSnapshot read_gpus(const std::string& wanted, std::span<const std::string_view> directories, Ask ask) {
  GpuSnapshot snapshot;
  const std::string library_path = find_nvml(wanted, directories, snapshot);
  if (library_path.empty()) return snapshot;
  const Library library(::dlopen(library_path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!library) {
    const char* why = ::dlerror();
    snapshot.error = why ? why : "cannot load " + library_path;
    return snapshot;
  }
  const auto init = find<nvmlInit_v2_t>(library, "nvmlInit_v2");
  const auto shutdown = find<nvmlShutdown_t>(library, "nvmlShutdown");
  if (!init) {
    snapshot.error = library_path + " has no nvmlInit_v2";
    return snapshot;
  }
  if (const Return result = init(); result != kSuccess) {
    snapshot.error = "nvmlInit_v2: " + error_text(library, result);
    return snapshot;
  }
  ask_all(library, snapshot, ask);
  if (shutdown) shutdown();
  return snapshot;
}

}  // namespace ms::health
