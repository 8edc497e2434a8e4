#include "watch/recovery.h"

#include <algorithm>
#include <cmath>

namespace ms::watch {
namespace {

constexpr double kMostBackOff_s = 300;
constexpr double kOthersWait_s = 2;

}  // namespace

double report_every_s(std::size_t nodes) { return std::max(0.25, static_cast<double>(nodes) / 8000); }

double wait_before_attempt_s(int idle, bool on_others) {
  if (on_others) return std::min(kMostBackOff_s, kOthersWait_s * std::exp2(idle));
  return idle == 0 ? 0 : std::min(kMostBackOff_s, std::exp2(idle - 1));
}

}  // namespace ms::watch
