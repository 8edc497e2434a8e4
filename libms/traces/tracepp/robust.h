// Statistics that a few extreme values do not change. For the analyses of this module.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace ms::tracepp {

// Returns the quantile `q` by the nearest rank; reorders the values. 0 for an empty list.
template <typename T>
T quantile(std::vector<T>& values, double q) {
  if (values.empty()) return {};
  const double place = std::ceil(q * static_cast<double>(values.size())) - 1;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max(place, 0.0));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// Returns the median; of an even number of values the mean of the middle two. Reorders the values. 0 for an empty list.
template <typename T>
double median(std::vector<T>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return static_cast<double>(*middle);
  return (static_cast<double>(*middle) + static_cast<double>(*std::max_element(values.begin(), middle))) / 2;
}

struct Spread {
  double median = 0;
  double sigma = 0;  // 1.4826 times the median distance from the median: of normal values their standard deviation
};

inline Spread robust_spread(std::vector<double> values) {
  constexpr double kSigmaOfNormal = 1.4826;
  const double middle = median(values);
  for (double& value : values) value = std::abs(value - middle);
  return {middle, kSigmaOfNormal * median(values)};
}

}  // namespace ms::tracepp
