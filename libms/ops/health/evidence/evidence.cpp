#include "health/evidence/evidence.h"

#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace ms::health {
Evidence::Evidence(const Policy& policy, double now_wall_s, double not_before_wall_s, Counters before, Asked asked)
    : policy_(policy),
      root_(policy.paths.sysroot),
      now_wall_s_(now_wall_s),
      not_before_wall_s_(not_before_wall_s),
      before_(std::move(before)),
      asked_(std::move(asked)) {}

// Without the time asleep. A fake root may have its own.
double Evidence::uptime_s() const {
  if (!root_.is_real()) {
    if (const std::optional<std::string> text = root_.read("/proc/uptime")) return std::strtod(text->c_str(), nullptr);
  }
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

const GpuSnapshot& Evidence::gpus() {
  if (!gpus_) gpus_ = read_gpus(policy_.paths.nvml);
  return *gpus_;
}

const KernelLog& Evidence::kernel_log() {
  if (!kernel_log_) {
    const double booted_wall_s = now_wall_s_ - uptime_s();
    kernel_log_ = read_kernel_log(root_, not_before_wall_s_ > 0 ? not_before_wall_s_ - booted_wall_s : 0);
  }
  return *kernel_log_;
}

std::optional<Counter> Evidence::before(std::string_view name) const {
  const auto found = before_.find(name);
  return found == before_.end() ? std::nullopt : std::optional(found->second);
}

void Evidence::begin_check(const Clock& clock, double work_s) {
  clock_ = &clock;
  work_ends_s_ = clock.now_s() + work_s;
}

double Evidence::left_s() const {
  if (clock_ == nullptr) return std::numeric_limits<double>::infinity();
  return std::max(0.0, work_ends_s_ - clock_->now_s());
}

}  // namespace ms::health
