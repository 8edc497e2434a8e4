// What ranks of an MPI world tell each other beside their data: that one stops, and why; the values of the store where
// there is no PMIx. Pure: texts to values and back.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/error.h"

namespace ms::comm {

inline constexpr std::size_t kMaxControlBytes = 64 << 10;

// An error with all that it knows; its texts are cut so that the message stays below the limit.
std::string stop_message(const Error& error);

struct PublishedValue {
  std::string key;
  std::string value;
};
// Within the limits of the store.
std::string value_message(const std::string& key, const std::string& value);

// Nothing where it is neither.
std::optional<std::variant<Error, PublishedValue>> parse_control(std::string_view text);

}  // namespace ms::comm
