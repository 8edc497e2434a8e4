// Whether a measured cluster file can be believed: the machine had nothing else to do, and more work takes longer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/sysroot.h"
#include "cost/cluster.h"

namespace ms::train {

// Returns the seconds since boot that these processors of /proc/stat were busy, with any process; nullopt where it does
// not report one of them. `ticks`: of its clock, a second.
std::optional<double> busy_seconds(const Sysroot& root, const std::vector<int>& cpus, double ticks);

// Observes what others make of the processors that this process may use, from its construction on.
class OtherWork {
 public:
  OtherWork();
  // Returns the part of the processors' time that other processes had, 0 to 1; 0 where the kernel does not say.
  double part() const;

 private:
  struct Now {
    double wall_s, own_s;
    std::optional<double> busy_s;
  };
  Now now() const;

  std::vector<int> cpus_;
  Now begin_;
};

// Returns why a calibration cannot be believed, a sentence for each reason. `others`: OtherWork::part() while it was
// measured.
std::vector<std::string> doubts(const cost::DeviceConfig& device, double others);

}  // namespace ms::train
