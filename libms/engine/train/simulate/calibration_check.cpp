#include "train/simulate/calibration_check.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "base/clock.h"
#include "base/text.h"
#include "cost/roofline.h"

namespace ms::train {
namespace {

std::vector<int> usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

double own_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The system's own needs stay below this part of the processors.
constexpr double kMostOthers = 0.1;
// An operation of more work may seem to take less time by this factor: a point stands for sizes of a third of a decade,
// a factor of 2.15, and small operations take the same time.
constexpr double kTimeMayFall = 2.5;

// How many times as low as that of smaller operations the share of a larger one may be: what does not fit into caches
// is slower, and so are narrow shapes.
struct CurveRule {
  std::string_view name;
  std::vector<std::string> cost::DeviceConfig::*points;
  double share_may_fall;
};
constexpr CurveRule kCurveRules[] = {{"gemm", &cost::DeviceConfig::gemm, 3},
                                     {"attention", &cost::DeviceConfig::attention, 4},
                                     {"memory", &cost::DeviceConfig::memory, 16}};

}  // namespace

std::optional<double> busy_seconds(const Sysroot& root, const std::vector<int>& cpus, double ticks) {
  // cpuN user nice system idle iowait irq softirq steal ...
  constexpr int kIdle = 3, kWaiting = 4, kColumns = 8;
  double busy = 0;
  std::size_t found = 0;
  for (const std::string& line : split(root.read("/proc/stat").value_or(""), '\n')) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    const auto is_it = [&name](int cpu) { return name == fmt::format("cpu{}", cpu); };
    if (std::ranges::none_of(cpus, is_it)) continue;
    ++found;
    double value = 0;
    for (int column = 0; column < kColumns && words >> value; ++column) {
      if (column != kIdle && column != kWaiting) busy += value;
    }
  }
  if (found == 0 || found < cpus.size()) return std::nullopt;
  return busy / ticks;
}

OtherWork::OtherWork() : cpus_(usable_cpus()), begin_(now()) {}

OtherWork::Now OtherWork::now() const {
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  return {.wall_s = monotonic_s(), .own_s = own_seconds(), .busy_s = busy_seconds(Sysroot(), cpus_, ticks)};
}

double OtherWork::part() const {
  const Now end = now();
  if (!begin_.busy_s || !end.busy_s || end.wall_s <= begin_.wall_s) return 0;
  const double others_s = (*end.busy_s - *begin_.busy_s) - (end.own_s - begin_.own_s);
  return std::clamp(others_s / (static_cast<double>(cpus_.size()) * (end.wall_s - begin_.wall_s)), 0.0, 1.0);
}

std::vector<std::string> doubts(const cost::DeviceConfig& device, double others) {
  std::vector<std::string> reasons;
  if (others > kMostOthers) {
    reasons.push_back(fmt::format("other processes had {:.0f} % of the processors meanwhile", 100 * others));
  }
  for (const CurveRule& rule : kCurveRules) {
    const cost::Curve curve = cost::parse_curve(device.*rule.points, rule.name);
    double best = 0;
    for (std::size_t i = 0; i < curve.points.size(); ++i) {
      const auto [size, share] = curve.points[i];
      if (i > 0) {
        const auto [smaller, smaller_share] = curve.points[i - 1];
        if (const double faster = (smaller / smaller_share) / (size / share); faster > kTimeMayFall) {
          reasons.push_back(fmt::format("[device] {}: size {:.3g} takes {:.1f} times less time than size {:.3g}",
                                        rule.name, size, faster, smaller));
        }
      }
      if (share * rule.share_may_fall < best) {
        reasons.push_back(
            fmt::format("[device] {}: size {:.3g} reaches {:.1f} times less of the peak than smaller sizes", rule.name,
                        size, best / share));
      }
      best = std::max(best, share);
    }
  }
  return reasons;
}

}  // namespace ms::train
