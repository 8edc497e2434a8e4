// For the readers of files that other programs wrote: how large they may be, how deep JSON may nest, and a wrong value
// in a message.
#pragma once

#include <cstddef>
#include <string>

#include "base/json.h"
#include "base/text.h"
#include "base/user_path.h"

namespace ms::hf {

inline constexpr std::size_t kMaxDepth = 32;  // of a header, an index or a config.json; those of real models need 4

// The text of a file beside the weights; those of real models have 40 MB at most.
inline constexpr std::size_t kMaxTextBytes = std::size_t{128} << 20;
inline std::string read_text(const std::string& path) { return read_user_file(path, kMaxTextBytes); }

// Returns the value as text of at most `max` bytes, or that it is an object or a list, whose size nobody bounds.
inline std::string shown(const Json& value, std::size_t max) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return plain_text(value.dump(), max);
}

}  // namespace ms::hf
