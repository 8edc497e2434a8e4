// Words and numbers in lines that other programs print, for the readers of logs.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/number.h"
#include "tracepp/read/text_input.h"

namespace ms::tracepp {

inline bool has_words(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline std::optional<std::int64_t> number_after(std::string_view text, std::string_view part) {
  const std::size_t at = text.find(part);
  return at == std::string_view::npos ? std::nullopt : leading_number<std::int64_t>(text.substr(at + part.size()));
}

// Returns a number that counts or names something, else `otherwise`.
inline int small_number(std::optional<std::int64_t> number, int otherwise) {
  return number && *number >= 0 && *number <= 1'000'000'000 ? static_cast<int>(*number) : otherwise;
}

// Returns the text of a file; of a longer one the first `most` bytes and at most a piece more.
inline std::string whole_text(TextInput& input, std::size_t most) {
  std::string text;
  std::array<char, 1 << 16> piece;
  for (std::size_t count = input.read(piece); count > 0 && text.size() < most; count = input.read(piece))
    text.append(piece.data(), count);
  return text;
}

}  // namespace ms::tracepp
