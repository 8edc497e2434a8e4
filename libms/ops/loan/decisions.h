// How long decisions take.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace ms::loan {

struct Decisions {
  int count = 0;
  double sum_s = 0;
  double max_s = 0;

  double mean_s() const { return count == 0 ? 0 : sum_s / count; }
};

// Counts one decision, as long as the object lives.
class Measured {
 public:
  explicit Measured(Decisions& decisions) : decisions_(decisions), begin_s_(monotonic_s()) {}
  Measured(const Measured&) = delete;
  Measured& operator=(const Measured&) = delete;
  ~Measured() {
    const double seconds = monotonic_s() - begin_s_;
    ++decisions_.count;
    decisions_.sum_s += seconds;
    decisions_.max_s = std::max(decisions_.max_s, seconds);
  }

 private:
  Decisions& decisions_;
  double begin_s_;
};

}  // namespace ms::loan
