// For the readers of JSON that other programs wrote: how deep it may nest, and a wrong value in a message.
#pragma once

#include <string>

#include "base/json.h"
#include "base/text.h"

namespace ms::hf {

inline constexpr std::size_t kMaxDepth = 32;  // of a header, an index or a config.json; those of real models need 4

// Returns the value as text of at most `max` bytes, or that it is an object or a list, whose size nobody bounds.
inline std::string shown(const Json& value, std::size_t max) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return plain_text(value.dump(), max);
}

}  // namespace ms::hf
