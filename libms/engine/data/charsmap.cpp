#include "data/charsmap.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "base/base64.h"
#include "base/error.h"
#include "base/escape.h"
#include "data/unicode.h"
#include "data/utf8.h"

namespace ms::data {
namespace {

// A longer grapheme is replaced character by character.
constexpr std::size_t kMaxGraphemeBytes = 5;

[[noreturn]] void refuse(std::string_view why) {
  throw user_error("data.tokenizer", fmt::format("precompiled_charsmap: {}", why));
}

}  // namespace

Charsmap::Charsmap(std::string_view base64) {
  const std::optional<std::string> decoded = from_base64(base64);
  if (!decoded) refuse("is not base64");
  const std::string& bytes = *decoded;
  std::uint32_t trie_bytes = 0;
  if (bytes.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
  if (trie_bytes == 0 || bytes.size() - sizeof trie_bytes < trie_bytes) refuse("ends too early");
  static_assert(std::endian::native == std::endian::little);
  trie_.resize(trie_bytes / sizeof trie_[0]);
  std::memcpy(trie_.data(), bytes.data() + sizeof trie_bytes, trie_.size() * sizeof trie_[0]);
  replacements_ = bytes.substr(sizeof trie_bytes + trie_.size() * sizeof trie_[0]);
  std::string storage;
  if (valid_utf8(replacements_, storage).data() != replacements_.data()) refuse("its replacements are not UTF-8");
}

std::uint32_t Charsmap::unit(std::size_t at) const {
  if (at >= trie_.size()) refuse("its trie is damaged");
  return trie_[at];
}

// tokenizers takes the shortest text of the table that `text` begins with, and replaces the whole.
bool Charsmap::append_replacement(std::string_view text, std::string& result) const {
  const auto offset = [](std::uint32_t unit) { return std::size_t{unit >> 10U} << ((unit & 1U << 9U) >> 6U); };
  std::size_t node = offset(unit(0));
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) return false;
    node ^= byte;
    const std::uint32_t found = unit(node);
    if ((found & (1U << 31U | 0xffU)) != byte) return false;
    node ^= offset(found);
    if ((found >> 8U & 1U) == 0) continue;
    const std::size_t begin = unit(node) & ~(1U << 31U);
    if (begin > replacements_.size() ||
        (begin < replacements_.size() && utf8_bytes(std::string_view(replacements_).substr(begin)) == 0))
      refuse("its trie is damaged");
    result.append(replacements_, begin, std::min(replacements_.find('\0', begin), replacements_.size()) - begin);
    return true;
  }
  return false;
}

void Charsmap::append(std::string_view text, std::string& result) const {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = grapheme_end(text, at);
    if (end - at <= kMaxGraphemeBytes && append_replacement(text.substr(at, end - at), result)) at = end;
    while (at < end) {
      const std::string_view character = text.substr(at, code_point_at(text, at).bytes);
      if (!append_replacement(character, result)) result += character;
      at += character.size();
    }
  }
}

}  // namespace ms::data
