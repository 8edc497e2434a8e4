// What the readers of other people's JSON share: how deep it may nest, and how a wrong value is shown in a message.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/json_depth.h"
#include "base/text.h"

namespace ms::hf {

inline constexpr std::size_t kMaxDepth = 32;  // of a header, an index or a config.json; those of real models need 4

// A value as it stands there, in at most `max` bytes; of a list or an object, whose size nobody bounds, what it is.
inline std::string shown(const nlohmann::json& value, std::size_t max) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  return plain_text(value.dump(), max);
}

}  // namespace ms::hf
