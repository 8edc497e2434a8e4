// Appends fields of a protobuf message to its bytes (protobuf.dev/programming-guides/encoding). A message in a message
// is a field of its bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ms::trace::protobuf {

inline void add_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7U) to += static_cast<char>(value | 0x80U);
  to += static_cast<char>(value);
}

inline void add_number(std::string& to, unsigned field, std::uint64_t value) {
  add_varint(to, std::uint64_t{field} << 3U);
  add_varint(to, value);
}

inline void add_bytes(std::string& to, unsigned field, std::string_view bytes) {
  add_varint(to, std::uint64_t{field} << 3U | 2U);
  add_varint(to, bytes.size());
  to += bytes;
}

// Appends an unsigned number in little-endian order, without a field.
template <class T>
void add_little_endian(std::string& to, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) to += static_cast<char>(value >> (8 * i) & 0xFFU);
}

// T: 32 or 64 bits, as `fixed32`, `fixed64`, or the bits of `float` and `double`.
template <class T>
void add_fixed(std::string& to, unsigned field, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  add_varint(to, std::uint64_t{field} << 3U | (sizeof(T) == 4 ? 5U : 1U));
  add_little_endian(to, value);
}

}  // namespace ms::trace::protobuf
