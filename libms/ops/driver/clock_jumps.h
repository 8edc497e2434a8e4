// Jumps of the wall clock against the monotonic one, as of a clock that is set.
#pragma once

#include <cmath>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace ms::driver {

class ClockJumps {
 public:
  static constexpr double kLeast_s = 1;  // an NTP daemon that slews the clock takes minutes for it

  // Returns by how much the clock jumped since the last call; 0: it did not.
  double take(const Clock& clock) {
    const double offset_s = clock.wall_s() - clock.now_s();
    const double jump_s = offset_s - std::exchange(offset_s_, offset_s).value_or(offset_s);
    return std::abs(jump_s) < kLeast_s ? 0 : jump_s;
  }

 private:
  std::optional<double> offset_s_;
};

}  // namespace ms::driver
