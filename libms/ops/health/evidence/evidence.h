// Evidence: the inputs of checks, read when first asked for and then kept for the lane.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/sysroot.h"
#include "health/evidence/gpus.h"
#include "health/evidence/kernel_log.h"
#include "health/policy.h"

namespace ms::health {

// A number that only means something beside an earlier one ("net.flaps eth0" 17), with the time of the earlier one.
struct Counter {
  double value = 0;
  double wall_s = 0;
};
using Counters = std::map<std::string, Counter, std::less<>>;

// The wishes of the person who runs ms-diag, for checks of level 3.
struct Asked {
  std::string directory = {};      // to write to and read from; empty: none
  double soak_s = 60;              // how long each check that soaks goes on
  std::int64_t memory_bytes = -1;  // to test; -1: half of what is free
};

// The inputs of checks. Made once per lane (see runner.h), in that lane's own process; expensive evidence is read when
// first asked for.
class Evidence {
 public:
  // now_wall_s: the time; not_before_wall_s: the time of the last undrain, or 0: earlier log lines do not count;
  // before: counters kept by the last run.
  Evidence(const Policy& policy, double now_wall_s, double not_before_wall_s, Counters before, Asked asked = {});
  // For tests: the GPUs are these, and no library is asked.
  void set_gpus(GpuSnapshot gpus) { gpus_ = std::move(gpus); }

  const Policy& policy() const { return policy_; }
  const Asked& asked() const { return asked_; }
  const Sysroot& root() const { return root_; }
  double now_wall_s() const { return now_wall_s_; }
  double uptime_s() const;  // by the clock of the kernel log
  const GpuSnapshot& gpus();
  const KernelLog& kernel_log();  // since boot and not before not_before_wall_s
  // A check that makes a finding from a line of kernel_log() marks it; host.kmsg, the last of the lane, leaves it to
  // that.
  void mark_judged(const KernelLine& line) { judged_lines_.insert(&line); }
  bool is_judged(const KernelLine& line) const { return judged_lines_.contains(&line); }
  std::optional<Counter> before(std::string_view name) const;

  // The runner begins a check, whose work has so many seconds by this clock.
  void begin_check(const Clock& clock, double work_s);
  // Returns the seconds that are left; infinite outside a check.
  double left_s() const;

 private:
  const Policy& policy_;
  Sysroot root_;
  double now_wall_s_;
  double not_before_wall_s_;
  Counters before_;
  Asked asked_;
  std::optional<GpuSnapshot> gpus_;
  std::optional<KernelLog> kernel_log_;
  std::set<const KernelLine*> judged_lines_;
  const Clock* clock_ = nullptr;
  double work_ends_s_ = 0;
};

}  // namespace ms::health
