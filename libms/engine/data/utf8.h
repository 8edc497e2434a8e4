// UTF-8 for tokenizers. All functions but valid_utf8() take text that is UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ms::data {

struct CodePoint {
  char32_t value = 0;
  std::size_t bytes = 0;
};

// The code point at byte `at`, which is below text.size() and the beginning of a character.
inline CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {(lead & 0x1fU) << 6U | (byte(1) & 0x3fU), 2};
  if (lead < 0xf0) return {(lead & 0x0fU) << 12U | (byte(1) & 0x3fU) << 6U | (byte(2) & 0x3fU), 3};
  return {(lead & 0x07U) << 18U | (byte(1) & 0x3fU) << 12U | (byte(2) & 0x3fU) << 6U | (byte(3) & 0x3fU), 4};
}

// The byte at which the last character before byte `end` begins; `end` is above 0.
inline std::size_t previous_character(std::string_view text, std::size_t end) {
  do --end;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80U);
  return end;
}

void append_utf8(std::string& text, char32_t code_point);

// The text itself where it is UTF-8; otherwise `storage`, which becomes the text with U+FFFD for each maximal subpart
// that is not UTF-8, as Unicode recommends and as Python's errors="replace" has it.
std::string_view valid_utf8(std::string_view text, std::string& storage);

// Whether Unicode gives the code point the property White_Space.
inline bool is_white_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0d);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

}  // namespace ms::data
