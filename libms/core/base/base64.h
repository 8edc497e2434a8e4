// Base64 of RFC 4648, section 4.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ms {

// Returns the digits, padded with '='.
std::string to_base64(std::string_view bytes);
// Returns the bytes; the padding may be absent. nullopt: another character, or too few digits for the last byte.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace ms
