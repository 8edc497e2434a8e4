#include "data/byte_alphabet.h"

#include "data/utf8.h"

namespace ms::data {
namespace {

constexpr char32_t kAlphabetEnd = 0x144;  // behind the last character

constexpr bool is_visible(char32_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

constexpr std::array<char32_t, 256> characters() {
  std::array<char32_t, 256> result{};
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) result[byte] = is_visible(byte) ? byte : next++;
  return result;
}
constexpr std::array<char32_t, 256> kCharacters = characters();

constexpr std::array<int, kAlphabetEnd> bytes_of_characters() {
  std::array<int, kAlphabetEnd> result{};
  for (int& byte : result) byte = -1;
  for (int byte = 0; byte < 256; ++byte) result[kCharacters[static_cast<std::size_t>(byte)]] = byte;
  return result;
}
constexpr std::array<int, kAlphabetEnd> kBytes = bytes_of_characters();

}  // namespace

const std::array<char32_t, 256>& byte_characters() { return kCharacters; }

std::string to_alphabet(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) append_utf8(text, kCharacters[static_cast<unsigned char>(byte)]);
  return text;
}

std::optional<std::string> from_alphabet(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (c.value >= kAlphabetEnd || kBytes[c.value] < 0) return {};
    bytes.push_back(static_cast<char>(kBytes[c.value]));
    at += c.bytes;
  }
  return bytes;
}

}  // namespace ms::data
