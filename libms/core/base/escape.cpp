#include "base/escape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace ms {
namespace {

// The code point of a whole UTF-8 character.
std::uint32_t code_point(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(character[i])); };
  if (character.size() == 1) return byte(0);
  std::uint32_t code = byte(0) & (0x7fU >> character.size());
  for (std::size_t i = 1; i < character.size(); ++i) code = code << 6U | (byte(i) & 0x3fU);
  return code;
}

// Controls, ends of lines, and marks, embeddings and isolates that turn the direction of text.
bool steers(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

std::string escape_of(std::uint32_t code) {
  if (code == '\n') return "\\n";
  if (code == '\t') return "\\t";
  if (code == '\r') return "\\r";
  // From 0x7f on as JSON and TOML write it, so that their documents stay what they are.
  return code < 0x20 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string safe;
  safe.reserve(text.size());
  while (!text.empty()) {
    const std::size_t bytes = utf8_bytes(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(1, bytes));
    if (bytes == 0) {
      safe += fmt::format("\\x{:02x}", static_cast<unsigned char>(character[0]));
    } else if (const std::uint32_t code = code_point(character);
               steers(code) && kept.find(character) == std::string_view::npos) {
      safe += escape_of(code);
    } else {
      safe += character;
    }
    text.remove_prefix(character.size());
  }
  return safe;
}

}  // namespace

std::size_t utf8_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto follows = [&](std::size_t i) { return (byte(i) & 0xc0U) == 0x80U; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return text.empty() ? 0 : 1;
  if (lead >= 0xc2 && lead < 0xe0) return follows(1) ? 2 : 0;
  if (lead >= 0xe0 && lead < 0xf0) {
    const unsigned least = lead == 0xe0 ? 0xa0 : 0x80, most = lead == 0xed ? 0x9f : 0xbf;  // no surrogates
    return byte(1) >= least && byte(1) <= most && follows(2) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead < 0xf5) {
    const unsigned least = lead == 0xf0 ? 0x90 : 0x80, most = lead == 0xf4 ? 0x8f : 0xbf;
    return byte(1) >= least && byte(1) <= most && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

std::size_t whole_utf8_bytes(std::string_view text) {
  for (std::size_t tail = 1; tail <= std::min<std::size_t>(3, text.size()); ++tail) {
    const auto lead = static_cast<unsigned char>(text[text.size() - tail]);
    if ((lead & 0xc0U) == 0x80U) continue;  // not the first byte of a character
    const std::size_t due = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 1;
    return due > tail ? text.size() - tail : text.size();
  }
  return text.size();
}

std::string safe_line(std::string_view text) { return escaped(text, ""); }
std::string safe_lines(std::string_view text) { return escaped(text, "\n\t"); }

std::string safe_html(std::string_view text) {
  std::string html;
  for (const char c : safe_line(text)) {
    switch (c) {
      case '&': html += "&amp;"; break;
      case '<': html += "&lt;"; break;
      case '>': html += "&gt;"; break;
      case '"': html += "&quot;"; break;
      case '\'': html += "&#39;"; break;
      default: html += c;
    }
  }
  return html;
}

std::string safe_label(std::string_view text) {
  std::string value;
  for (const char c : text) {
    if (c == '\\' || c == '"') value += '\\';
    value += c >= ' ' && c <= '~' ? c : '?';
  }
  return value;
}

}  // namespace ms
