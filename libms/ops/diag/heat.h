// Heat and power under load: what the kernel and the GPUs' driver say about it.
#pragma once

#include <map>
#include <vector>

#include "base/finding.h"
#include "base/sysroot.h"
#include "health/evidence/gpus.h"

namespace ms::diag {

// How often each core was throttled since boot; empty where the processor does not count it.
struct CpuHeat {
  std::map<int, std::int64_t> throttles = {};
};
CpuHeat cpu_heat(const Sysroot& root, const std::vector<int>& cpus);
// A finding for each core that was throttled between the two.
std::vector<Finding> judge_heat(const CpuHeat& before, const CpuHeat& after);

// A GPU under load, over several looks at it: its lowest clock, and the highest of the others.
struct GpuHeat {
  std::optional<double> clock_mhz = {}, temperature_c = {}, power_w = {};
  std::uint64_t reasons = 0;  // for lower clocks, of all looks (nvml.h)
};
class GpuHeats {
 public:
  void look(const health::GpuSnapshot& snapshot);
  const std::map<int, GpuHeat>& all() const { return heats_; }  // by the driver's number

 private:
  std::map<int, GpuHeat> heats_;
};

// A warning for each GPU that the hardware slowed down, and, of three GPUs and more, for each whose clock was more than
// a tenth below the median of all.
std::vector<Finding> judge_heat(const std::map<int, GpuHeat>& heats);

}  // namespace ms::diag
