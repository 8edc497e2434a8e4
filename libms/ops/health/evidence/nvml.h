// The part of NVML's C interface that we ask, declared by ourselves so that neither building nor running needs NVIDIA's
// header. Names, values and layouts are those of nvml.h 13.3.29 (API version 13) and have been stable since driver 450;
// functions that older or newer drivers lack are simply not found. Nothing here changes a state. Private to gpus.cpp
// and to the fake library of the tests.
#pragma once

#include <cstdint>

namespace ms::health::nvml {

struct DeviceOpaque;
using Device = DeviceOpaque*;

using Return = int;
inline constexpr Return kSuccess = 0;
inline constexpr Return kInvalidArgument = 2;
inline constexpr Return kNotSupported = 3;
inline constexpr Return kNoPermission = 4;
inline constexpr Return kDriverNotLoaded = 9;
inline constexpr Return kCorruptedInforom = 14;
inline constexpr Return kGpuIsLost = 15;
inline constexpr Return kResetRequired = 16;
inline constexpr Return kOperatingSystem = 17;  // blocked by the operating system or cgroups
inline constexpr Return kUnknown = 999;

struct PciInfo {  // nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain, bus, device;
  unsigned device_id, subsystem_id;
  char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);

struct Memory {  // nvmlMemory_t; `used` holds what the driver reserves for itself
  unsigned long long total, free, used;
};

struct MemoryV2 {  // nvmlMemory_v2_t
  unsigned version;
  unsigned long long total, reserved, free, used;
};
static_assert(sizeof(MemoryV2) == 40);
inline constexpr unsigned kMemoryV2 = sizeof(MemoryV2) | 2U << 24;  // NVML_STRUCT_VERSION(Memory, 2)

struct ProcessInfo {  // nvmlProcessInfo_v2_t, which version 3 of the call kept
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessInfo) == 24);
inline constexpr unsigned kMaxProcesses = 64;  // of a GPU: where there are more, none is named

struct Utilization {  // nvmlUtilization_t, in percent of the last sample period
  unsigned gpu, memory;
};
struct FabricInfo {  // nvmlGpuFabricInfo_t
  unsigned char cluster[16];
  Return status;
  unsigned clique;
  unsigned char state;
};
static_assert(sizeof(FabricInfo) == 28);
inline constexpr unsigned char kFabricNone = 0;  // NVML_GPU_FABRIC_STATE_...
inline constexpr unsigned char kFabricCompleted = 3;

enum ValueType : int {
  kDouble = 0,
  kUnsignedInt = 1,
  kUnsignedLong = 2,
  kUnsignedLongLong = 3,
  kSignedLongLong = 4,
  kSignedInt = 5,
  kUnsignedShort = 6
};

union Value {  // nvmlValue_t
  double d;
  int si;
  unsigned ui;
  unsigned long ul;
  unsigned long long ull;
  long long sll;
  unsigned short us;
};

struct FieldValue {  // nvmlFieldValue_t
  unsigned field;
  unsigned scope;
  long long timestamp_us, latency_us;
  ValueType type;
  Return result;
  Value value;
};
static_assert(sizeof(FieldValue) == 40);

// NVML_FI_DEV_...
inline constexpr unsigned kFieldRetiredCorrected = 29;    // RETIRED_SBE: pages
inline constexpr unsigned kFieldRetiredUncorrected = 30;  // RETIRED_DBE
inline constexpr unsigned kFieldMemoryTemperature = 82;   // MEMORY_TEMP, in degrees
inline constexpr unsigned kFieldNvlinkCount = 91;
inline constexpr unsigned kFieldRecoveryAction = 230;  // GET_GPU_RECOVERY_ACTION, driver 570 and later

inline constexpr int kCorrected = 0, kUncorrected = 1;  // nvmlMemoryErrorType_t
inline constexpr int kVolatile = 0;                     // nvmlEccCounterType_t: since the driver was loaded
inline constexpr int kAggregate = 1;                    // and of the GPU's life
inline constexpr int kClockSm = 1, kClockMemory = 2;    // nvmlClockType_t
inline constexpr int kTemperatureGpu = 0;               // nvmlTemperatureSensors_t
inline constexpr unsigned kMaxNvlinks = 36;             // NVML_NVLINK_MAX_LINKS
inline constexpr int kNvlinkErrors = 5;                 // replay, recovery, CRC of flits, CRC and ECC of data
inline constexpr unsigned kNameBytes = 96;

// nvmlClocksEventReasons, formerly nvmlClocksThrottleReasons: those that mean that the hardware protects itself.
inline constexpr std::uint64_t kHwSlowdown = 0x08;
inline constexpr std::uint64_t kHwThermalSlowdown = 0x40;
inline constexpr std::uint64_t kHwPowerBrakeSlowdown = 0x80;

}  // namespace ms::health::nvml

// The functions' types, as C declares them. They are looked up by name and never linked.
extern "C" {
using nvmlInit_v2_t = ms::health::nvml::Return();
using nvmlShutdown_t = ms::health::nvml::Return();
using nvmlErrorString_t = const char*(ms::health::nvml::Return);
using nvmlSystemGetDriverVersion_t = ms::health::nvml::Return(char*, unsigned);
using nvmlDeviceGetCount_v2_t = ms::health::nvml::Return(unsigned*);
using nvmlDeviceGetHandleByIndex_v2_t = ms::health::nvml::Return(unsigned, ms::health::nvml::Device*);
using nvmlDeviceGetText_t = ms::health::nvml::Return(ms::health::nvml::Device, char*, unsigned);  // Name, UUID
using nvmlDeviceGetUnsigned_t = ms::health::nvml::Return(ms::health::nvml::Device, unsigned*);
using nvmlDeviceValidateInforom_t = ms::health::nvml::Return(ms::health::nvml::Device);
using nvmlDeviceGetClock_t = ms::health::nvml::Return(ms::health::nvml::Device, int, unsigned*);  // and its maximum
using nvmlDeviceGetNvLinkErrorCounter_t = ms::health::nvml::Return(ms::health::nvml::Device, unsigned, int,
                                                                   unsigned long long*);
using nvmlDeviceGetGpuFabricInfo_t = ms::health::nvml::Return(ms::health::nvml::Device, ms::health::nvml::FabricInfo*);
using nvmlDeviceGetPciInfo_v3_t = ms::health::nvml::Return(ms::health::nvml::Device, ms::health::nvml::PciInfo*);
using nvmlDeviceGetTotalEccErrors_t = ms::health::nvml::Return(ms::health::nvml::Device, int, int, unsigned long long*);
using nvmlDeviceGetRemappedRows_t = ms::health::nvml::Return(ms::health::nvml::Device, unsigned*, unsigned*, unsigned*,
                                                             unsigned*);
using nvmlDeviceGetFieldValues_t = ms::health::nvml::Return(ms::health::nvml::Device, int,
                                                            ms::health::nvml::FieldValue*);
using nvmlDeviceGetNvLinkState_t = ms::health::nvml::Return(ms::health::nvml::Device, unsigned, int*);
using nvmlDeviceGetClocksEventReasons_t = ms::health::nvml::Return(ms::health::nvml::Device, unsigned long long*);
using nvmlDeviceGetTemperature_t = ms::health::nvml::Return(ms::health::nvml::Device, int, unsigned*);
using nvmlDeviceGetUtilizationRates_t = ms::health::nvml::Return(ms::health::nvml::Device,
                                                                 ms::health::nvml::Utilization*);
using nvmlDeviceGetMemoryInfo_t = ms::health::nvml::Return(ms::health::nvml::Device, ms::health::nvml::Memory*);
using nvmlDeviceGetMemoryInfo_v2_t = ms::health::nvml::Return(ms::health::nvml::Device, ms::health::nvml::MemoryV2*);
using nvmlDeviceGetComputeRunningProcesses_t = ms::health::nvml::Return(ms::health::nvml::Device, unsigned*,
                                                                        ms::health::nvml::ProcessInfo*);
}
