// The list of the passive checks, in the order in which ms-diag list shows them. A check is a file of this folder,
// named by its code, with one line here. kHostKmsg is the last: it leaves to the others the lines that they judged.
#include "health/checks/registry.h"

#include <algorithm>

#define MS_PASSIVE_CHECKS(X) \
  X(kGpuDriver)              \
  X(kGpuCount)               \
  X(kGpuLost)                \
  X(kGpuEcc)                 \
  X(kGpuRemap)               \
  X(kGpuRecovery)            \
  X(kGpuXid)                 \
  X(kGpuPcie)                \
  X(kGpuNvlink)              \
  X(kGpuThermal)             \
  X(kGpuBusy)                \
  X(kGpuSxid)                \
  X(kGpuMixed)               \
  X(kGpuPersist)             \
  X(kGpuNverrors)            \
  X(kGpuInforom)             \
  X(kGpuFabric)              \
  X(kHostMce)                \
  X(kHostMemory)             \
  X(kHostCpus)               \
  X(kHostClock)              \
  X(kHostHung)               \
  X(kHostSpace)              \
  X(kHostPcie)               \
  X(kHostThermal)            \
  X(kHostTimer)              \
  X(kHostSwap)               \
  X(kHostFree)               \
  X(kHostFrag)               \
  X(kHostTables)             \
  X(kHostLoad)               \
  X(kHostNuma)               \
  X(kHostDimms)              \
  X(kHostSensors)            \
  X(kHostModules)            \
  X(kHostProcs)              \
  X(kHostVersion)            \
  X(kHostBoots)              \
  X(kHostStrays)             \
  X(kDiskMounts)             \
  X(kDiskErrors)             \
  X(kDiskRo)                 \
  X(kDiskNfs)                \
  X(kDiskLustre)             \
  X(kDiskRaid)               \
  X(kDiskNvme)               \
  X(kNetLink)                \
  X(kNetFlaps)               \
  X(kNetErrors)              \
  X(kNetPcie)                \
  X(kNetMlx5)                \
  X(kNetMtu)                 \
  X(kNetHcas)                \
  X(kSlurmGres)              \
  X(kSiteChecks)             \
  X(kHostKmsg)

namespace ms::health {

#define MS_DECLARE(check) extern const Check check;
MS_PASSIVE_CHECKS(MS_DECLARE)

const std::vector<Check>& passive_checks() {
#define MS_ENTRY(check) check,
  static const std::vector<Check> kAll = {MS_PASSIVE_CHECKS(MS_ENTRY)};
  return kAll;
}

const Check* find_check(const std::vector<Check>& checks, std::string_view code) {
  const auto found = std::find_if(checks.begin(), checks.end(), [&](const Check& check) { return check.code == code; });
  return found == checks.end() ? nullptr : &*found;
}

}  // namespace ms::health
