// Finds units that are slower than their peers, and in which steps, from values that each unit has in every step. For
// suspects.cpp. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ms::tracepp {

struct Outlier {
  int unit = 0;
  double excess = 0;                // 0.1: its values are 10 % above those of its peers,
  std::size_t first = 0, last = 0;  // in these steps
  double threshold = 0;             // threshold that the excess had to reach
  bool is_size_known = true;        // false: hardly one of its values is undisturbed, and the excess is a guess
};

// values[unit][step], NaN if there is none. Units with the same number in `peers` do the same work: in each step the
// usual value is the median of them all (of two, the smaller one). A unit without peers is compared with its own faster
// steps, so that only a change is found. An outlier lasts for at least three steps, or all that there are, and exceeds
// `least_excess`, the difference between units and their variation from step to step. The worst first.
std::vector<Outlier> find_outliers(std::span<const float> values, std::size_t steps, std::span<const int> peers,
                                   double least_excess);

}  // namespace ms::tracepp
