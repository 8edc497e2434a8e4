// Reads numbers that others wrote, strictly: text as std::from_chars takes it (no blanks, no "+"; a number that does
// not fit is no number), and a double as an integer, since a cast of one that does not fit has no defined result.
#pragma once

#include <charconv>
#include <concepts>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

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

// Takes the number at the front of `text` off it. nullopt: there is none, and `text` stays as it is.
template <class Number>
std::optional<Number> take_number(std::string_view& text, int base = 10) {
  Number value{};
  const char* const end = text.data() + text.size();
  std::from_chars_result read{};
  if constexpr (std::integral<Number>) {
    read = std::from_chars(text.data(), end, value, base);
  } else {
    read = std::from_chars(text.data(), end, value);
  }
  if (read.ec != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(read.ptr - text.data()));
  return value;
}

// Returns the number at the front of `text`.
template <class Number>
std::optional<Number> leading_number(std::string_view text, int base = 10) {
  return take_number<Number>(text, base);
}

// Returns the number that all of `text` is.
template <class Number>
std::optional<Number> whole_number(std::string_view text, int base = 10) {
  const std::optional<Number> value = take_number<Number>(text, base);
  return text.empty() ? value : std::nullopt;
}

}  // namespace ms
