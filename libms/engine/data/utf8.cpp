#include "data/utf8.h"

#include <cstdint>
#include <cstring>

#include "base/escape.h"

namespace ms::data {
namespace {

constexpr std::uint64_t kHighBits = 0x8080808080808080U;

// Returns where the text has its first sequence that is not UTF-8, or its size.
std::size_t invalid_at(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    if (at + 8 <= text.size()) {
      std::uint64_t word = 0;
      std::memcpy(&word, text.data() + at, 8);
      if ((word & kHighBits) == 0) {
        at += 8;
        continue;
      }
    }
    const std::size_t bytes = utf8_bytes(text.substr(at));
    if (bytes == 0) break;
    at += bytes;
  }
  return at;
}

// Returns how many bytes at `at` one U+FFFD stands for: those that could begin a character, and at least one. Behind
// two bytes of a character any continuation completes it.
std::size_t maximal_subpart(std::string_view text, std::size_t at) {
  for (std::size_t bytes = 3; bytes > 1; --bytes) {
    if (bytes > text.size() - at) continue;
    char whole[5] = {'\x80', '\x80', '\x80', '\x80', '\x80'};
    std::memcpy(whole, text.data() + at, bytes);
    if (utf8_bytes({whole, sizeof whole}) > bytes) return bytes;
  }
  return 1;
}

}  // namespace

void append_utf8(std::string& text, char32_t c) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0U | c >> 6U);
    put(0x80U | (c & 0x3fU));
  } else if (c < 0x10000) {
    put(0xe0U | c >> 12U);
    put(0x80U | (c >> 6U & 0x3fU));
    put(0x80U | (c & 0x3fU));
  } else {
    put(0xf0U | c >> 18U);
    put(0x80U | (c >> 12U & 0x3fU));
    put(0x80U | (c >> 6U & 0x3fU));
    put(0x80U | (c & 0x3fU));
  }
}

std::string_view valid_utf8(std::string_view text, std::string& storage) {
  std::size_t bad = invalid_at(text, 0);
  if (bad == text.size()) return text;
  storage.clear();
  std::size_t kept = 0;
  while (bad < text.size()) {
    storage += text.substr(kept, bad - kept);
    storage += "\xef\xbf\xbd";
    kept = bad + maximal_subpart(text, bad);
    bad = invalid_at(text, kept);
  }
  storage += text.substr(kept);
  return storage;
}

}  // namespace ms::data
