// A library that answers like libnvidia-ml.so.1, from a description: for tests of what ms-diag makes of broken GPUs.
// The description is gpus.txt beside the library, else /run/fake/gpus.txt; without one the driver is "not loaded". It
// is read at every nvmlInit_v2. One statement a line, '#' begins a comment, later lines change what earlier ones said:
//
//   driver 570.124.06        the driver's version
//   init error 9             nvmlInit_v2 returns this number
//   init hang                ... or never returns; "init crash" ends the process by SIGSEGV
//   gpus 8                   as many healthy GPUs
//   gpu 3 lost               GPU 3 answers "GPU is lost"; "hang" and "crash" as above; "error 8": it has no handle
//   gpu 3 KEY=VALUE ...      its values; '-' as a value: not supported
//
// Keys: uuid name pci (without blanks), ecc_uncorrectable ecc_correctable remapped_correctable remapped_uncorrectable
// remap_pending remap_failed retired_pages_pending recovery_action pcie_width pcie_width_max nvlinks_active
// nvlinks_total clocks_event_reasons temperature_c memory_used_bytes memory_total_bytes persistent nvlink_errors vbios
// inforom inforom_valid fabric_state clock_mhz clock_max_mhz power_mw power_limit_mw memory_temperature_c
// memory_clock_mhz busy_percent memory_busy_percent life_uncorrectable life_correctable retired_correctable
// retired_uncorrectable pcie_replays process (the number of one that uses it).
#include <dlfcn.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "health/evidence/nvml.h"

namespace ms::health::nvml {

struct DeviceOpaque {
  std::string behaviour;  // "lost", "hang", "crash", "error"; empty: it answers
  Return error = kSuccess;
  std::map<std::string, std::string> values;
};

}  // namespace ms::health::nvml

namespace {

using namespace ms::health::nvml;

struct Machine {
  std::string driver = "570.124.06";
  std::string init;  // "hang", "crash", "error"; empty: it works
  Return error = kSuccess;
  std::vector<DeviceOpaque> gpus;
};

Machine& machine() {
  static Machine kept;
  return kept;
}

DeviceOpaque healthy(std::size_t index) {
  char uuid[64], pci[32];
  std::snprintf(uuid, sizeof uuid, "GPU-00000000-0000-0000-0000-%012zu", index);
  std::snprintf(pci, sizeof pci, "0000:%02zx:00.0", 0x10 + index);
  return {.behaviour = {},
          .error = kSuccess,
          .values = {{"uuid", uuid},
                     {"name", "Fake_H100"},
                     {"pci", pci},
                     {"ecc_uncorrectable", "0"},
                     {"ecc_correctable", "0"},
                     {"remapped_correctable", "0"},
                     {"remapped_uncorrectable", "0"},
                     {"remap_pending", "0"},
                     {"remap_failed", "0"},
                     {"retired_pages_pending", "-"},
                     {"recovery_action", "0"},
                     {"pcie_width", "16"},
                     {"pcie_width_max", "16"},
                     {"nvlinks_active", "18"},
                     {"nvlinks_total", "18"},
                     {"clocks_event_reasons", "0x1"},
                     {"temperature_c", "34"},
                     {"memory_used_bytes", "0"},
                     {"memory_total_bytes", "85899345920"},
                     {"persistent", "1"},
                     {"nvlink_errors", "0"},
                     {"vbios", "96.00.89.00.01"},
                     {"inforom", "G520.0200.00.05"},
                     {"inforom_valid", "1"},
                     {"fabric_state", "3"},
                     {"clock_mhz", "345"},
                     {"clock_max_mhz", "1980"},
                     {"power_mw", "71000"},
                     {"power_limit_mw", "700000"},
                     {"memory_temperature_c", "41"},
                     {"memory_clock_mhz", "2619"},
                     {"busy_percent", "0"},
                     {"memory_busy_percent", "0"},
                     {"life_uncorrectable", "0"},
                     {"life_correctable", "0"},
                     {"retired_correctable", "-"},
                     {"retired_uncorrectable", "-"},
                     {"pcie_replays", "0"},
                     {"process", "-"}}};
}

std::string description_path() {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&description_path), &self) != 0 && self.dli_fname != nullptr) {
    const std::string library = self.dli_fname;
    const std::string beside = library.substr(0, library.rfind('/') + 1) + "gpus.txt";
    if (::access(beside.c_str(), R_OK) == 0) return beside;
  }
  return "/run/fake/gpus.txt";
}

void describe_gpu(DeviceOpaque& gpu, std::istringstream& words) {
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) {
      const auto value = gpu.values.find(word.substr(0, equals));
      if (value == gpu.values.end()) throw std::runtime_error("no such key: " + word);
      value->second = word.substr(equals + 1);
    } else if (word == "lost" || word == "hang" || word == "crash") {
      gpu.behaviour = word;
    } else if (word == "error" && words >> gpu.error) {
      gpu.behaviour = word;
    } else {
      throw std::runtime_error("no such word: " + word);
    }
  }
}

void describe(Machine& described, const std::string& line) {
  std::istringstream words(line.substr(0, line.find('#')));
  std::string word;
  std::size_t number = 0;
  if (!(words >> word)) return;
  if (word == "driver" && words >> described.driver) return;
  if (word == "init" && words >> described.init) {
    if (described.init == "hang" || described.init == "crash") return;
    if (described.init == "error" && words >> described.error) return;
  }
  if (word == "gpus" && words >> number && number <= 64) {
    for (described.gpus.clear(); described.gpus.size() < number;) {
      described.gpus.push_back(healthy(described.gpus.size()));
    }
    return;
  }
  if (word == "gpu" && words >> number && number < described.gpus.size()) {
    return describe_gpu(described.gpus[number], words);
  }
  throw std::runtime_error("not understood: " + line);
}

[[noreturn]] void hang() {
  while (true) ::pause();
}

// What a call gets in place of an answer, if the GPU is not well.
Return behave(const std::string& behaviour, Return error) {
  if (behaviour == "hang") hang();
  if (behaviour == "crash") ::raise(SIGSEGV);
  if (behaviour == "lost") return kGpuIsLost;
  return behaviour == "error" ? error : kSuccess;
}

template <class Number>
Return answer(Device device, const char* key, Number* number) {
  if (device == nullptr || number == nullptr) return kInvalidArgument;
  const std::string& text = device->values.at(key);
  if (text == "-") return kNotSupported;
  *number = static_cast<Number>(std::strtoull(text.c_str(), nullptr, 0));
  return kSuccess;
}

Return answer_text(Device device, const char* key, char* text, unsigned length) {
  const std::string& value = device->values.at(key);
  if (value == "-") return kNotSupported;
  std::snprintf(text, length, "%s", value.c_str());
  return kSuccess;
}

}  // namespace

extern "C" {

Return nvmlInit_v2() {
  machine() = {};
  std::ifstream file(description_path());
  if (!file) return kDriverNotLoaded;
  try {
    for (std::string line; std::getline(file, line);) describe(machine(), line);
  } catch (const std::exception& mistake) {
    std::fprintf(stderr, "fake_nvml: %s: %s\n", description_path().c_str(), mistake.what());
    return kUnknown;
  }
  return behave(machine().init, machine().error);
}

Return nvmlShutdown() { return kSuccess; }

const char* nvmlErrorString(Return result) {
  switch (result) {
    case kSuccess: return "Success";
    case kNotSupported: return "Not Supported";
    case kNoPermission: return "Insufficient Permissions";
    case 8: return "Insufficient External Power";
    case kDriverNotLoaded: return "Driver Not Loaded";
    case kGpuIsLost: return "GPU is lost";
    case kResetRequired: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
  }
}

Return nvmlSystemGetDriverVersion(char* version, unsigned length) {
  std::snprintf(version, length, "%s", machine().driver.c_str());
  return kSuccess;
}

Return nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(machine().gpus.size());
  return kSuccess;
}

// Only a GPU without a handle is refused here; a lost one may still have one, and its questions are refused.
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  if (index >= machine().gpus.size()) return kInvalidArgument;
  *device = &machine().gpus[index];
  return (*device)->behaviour == "error" ? (*device)->error : kSuccess;
}

Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo* info) {
  *info = {};
  const std::string& pci = device->values.at("pci");
  if (std::sscanf(pci.c_str(), "%x:%x:%x", &info->domain, &info->bus, &info->device) != 3) return kNotSupported;
  std::snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", info->domain & 0xffffffff, info->bus & 0xff,
                info->device & 0xff);
  return kSuccess;
}

Return nvmlDeviceGetUUID(Device device, char* text, unsigned length) {
  if (const Return result = behave(device->behaviour, device->error); result != kSuccess) return result;
  return answer_text(device, "uuid", text, length);
}

Return nvmlDeviceGetName(Device device, char* text, unsigned length) {
  if (const Return result = behave(device->behaviour, device->error); result != kSuccess) return result;
  return answer_text(device, "name", text, length);
}

Return nvmlDeviceGetTotalEccErrors(Device device, int type, int counter, unsigned long long* count) {
  if (counter == kAggregate) {
    return answer(device, type == kUncorrected ? "life_uncorrectable" : "life_correctable", count);
  }
  return answer(device, type == kUncorrected ? "ecc_uncorrectable" : "ecc_correctable", count);
}

Return nvmlDeviceGetRemappedRows(Device device, unsigned* correctable, unsigned* uncorrectable, unsigned* pending,
                                 unsigned* failed) {
  for (const auto& [key, number] : {std::pair{"remapped_correctable", correctable},
                                    {"remapped_uncorrectable", uncorrectable},
                                    {"remap_pending", pending},
                                    {"remap_failed", failed}}) {
    if (const Return result = answer(device, key, number); result != kSuccess) return result;
  }
  return kSuccess;
}

Return nvmlDeviceGetRetiredPagesPendingStatus(Device device, unsigned* pending) {
  return answer(device, "retired_pages_pending", pending);
}

Return nvmlDeviceGetFieldValues(Device device, int count, FieldValue* values) {
  static const std::map<unsigned, const char*> kFields = {{kFieldNvlinkCount, "nvlinks_total"},
                                                          {kFieldRecoveryAction, "recovery_action"},
                                                          {kFieldMemoryTemperature, "memory_temperature_c"},
                                                          {kFieldRetiredCorrected, "retired_correctable"},
                                                          {kFieldRetiredUncorrected, "retired_uncorrectable"}};
  for (int i = 0; i < count; ++i) {
    FieldValue& value = values[i];
    value.type = kUnsignedInt;
    const auto key = kFields.find(value.field);
    value.result = key != kFields.end() ? answer(device, key->second, &value.value.ui) : kNotSupported;
  }
  return kSuccess;
}

Return nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned* width) { return answer(device, "pcie_width", width); }
Return nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned* width) { return answer(device, "pcie_width_max", width); }

Return nvmlDeviceGetNvLinkState(Device device, unsigned link, int* active) {
  unsigned total = 0, up = 0;
  if (const Return result = answer(device, "nvlinks_total", &total); result != kSuccess) return result;
  if (link >= total) return kInvalidArgument;
  const Return result = answer(device, "nvlinks_active", &up);
  *active = link < up ? 1 : 0;
  return result;
}

Return nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long* reasons) {
  return answer(device, "clocks_event_reasons", reasons);
}

Return nvmlDeviceGetTemperature(Device device, int, unsigned* degrees) {
  return answer(device, "temperature_c", degrees);
}

Return nvmlDeviceGetPersistenceMode(Device device, unsigned* mode) { return answer(device, "persistent", mode); }

Return nvmlDeviceGetNvLinkErrorCounter(Device device, unsigned, int kind, unsigned long long* errors) {
  *errors = 0;
  return kind == 1 ? answer(device, "nvlink_errors", errors) : kSuccess;
}

Return nvmlDeviceGetVbiosVersion(Device device, char* text, unsigned length) {
  return answer_text(device, "vbios", text, length);
}
Return nvmlDeviceGetInforomImageVersion(Device device, char* text, unsigned length) {
  return answer_text(device, "inforom", text, length);
}
Return nvmlDeviceValidateInforom(Device device) {
  unsigned valid = 0;
  const Return result = answer(device, "inforom_valid", &valid);
  return result != kSuccess || valid != 0 ? result : kCorruptedInforom;
}

Return nvmlDeviceGetGpuFabricInfo(Device device, FabricInfo* fabric) {
  *fabric = {};
  return answer(device, "fabric_state", &fabric->state);
}

Return nvmlDeviceGetMaxClockInfo(Device device, int, unsigned* mhz) { return answer(device, "clock_max_mhz", mhz); }
Return nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned* milliwatts) {
  return answer(device, "power_limit_mw", milliwatts);
}

Return nvmlDeviceGetPowerUsage(Device device, unsigned* milliwatts) { return answer(device, "power_mw", milliwatts); }
Return nvmlDeviceGetPcieReplayCounter(Device device, unsigned* count) { return answer(device, "pcie_replays", count); }

Return nvmlDeviceGetClockInfo(Device device, int which, unsigned* mhz) {
  if (which != kClockSm && which != kClockMemory) return kInvalidArgument;
  return answer(device, which == kClockSm ? "clock_mhz" : "memory_clock_mhz", mhz);
}

Return nvmlDeviceGetUtilizationRates(Device device, Utilization* busy) {
  if (const Return result = answer(device, "busy_percent", &busy->gpu); result != kSuccess) return result;
  return answer(device, "memory_busy_percent", &busy->memory);
}

Return nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2* memory) {
  if (memory->version != kMemoryV2) return kInvalidArgument;
  memory->reserved = 0;
  if (const Return result = answer(device, "memory_total_bytes", &memory->total); result != kSuccess) return result;
  const Return result = answer(device, "memory_used_bytes", &memory->used);
  memory->free = memory->total - memory->used;
  return result;
}

Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, ProcessInfo* processes) {
  *count = 0;
  const Return result = answer(device, "process", &processes->pid);
  if (result == kSuccess) *count = 1;
  return result;
}

}  // extern "C"
