// Checked conversion of numbers that others wrote: a cast of a double that the integer cannot hold has no defined
// result.
#pragma once

#include <concepts>
#include <limits>
#include <optional>

namespace ms {

// The value without its fraction; nullopt: T cannot hold it, or it is NaN.
template <std::integral T>
constexpr std::optional<T> to_integer(double value) {
  // Powers of two, and so exact; as a double, max() itself may not be.
  constexpr double kBelow = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double kEnd = 2.0 * static_cast<double>(T{1} << (std::numeric_limits<T>::digits - 1));
  if (!(value >= kBelow && value < kEnd)) return std::nullopt;
  return static_cast<T>(value);
}

}  // namespace ms
