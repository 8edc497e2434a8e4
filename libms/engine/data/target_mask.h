// Marks of tokens that the loss ignores as targets: such a token travels as its complement, which is negative. Its id
// is still known where it is an input.
#pragma once

#include <cstdint>
#include <span>

namespace ms::data {

constexpr std::int32_t ignored_target(std::int32_t id) { return ~id; }
// Returns the id of a token, marked or not.
constexpr std::int32_t token_id(std::int32_t token) { return token ^ (token >> 31); }

// Marks tokens that are not marked.
inline void ignore_targets(std::span<std::int32_t> ids) {
  for (std::int32_t& id : ids) id = ignored_target(id);
}
inline void remove_marks(std::span<std::int32_t> tokens) {
  for (std::int32_t& token : tokens) token = token_id(token);
}

}  // namespace ms::data
