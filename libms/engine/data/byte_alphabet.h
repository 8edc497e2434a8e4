// The alphabet of byte-level BPE: a printable character for each byte, as in the vocabularies of GPT-2 and all after
// it.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace ms::data {

// The character of each byte: itself where Latin-1 has a visible one, and U+0100, U+0101, ... in order for the others.
const std::array<char32_t, 256>& byte_characters();

// The text of bytes as vocabularies write it, and back; nullopt: a character is none of the alphabet's.
std::string to_alphabet(std::string_view bytes);
std::optional<std::string> from_alphabet(std::string_view text);

}  // namespace ms::data
