// The numbers of a page: many, so they are packed as columns of one type, which the page's script reads as typed
// arrays. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace ms::tracepp {

// Columns one after the other, each at a multiple of eight bytes, little-endian.
class Columns {
 public:
  void add(std::string_view name, std::span<const double> values) { add(name, "f64", std::as_bytes(values)); }
  void add(std::string_view name, std::span<const float> values) { add(name, "f32", std::as_bytes(values)); }
  void add(std::string_view name, std::span<const std::int32_t> values) { add(name, "i32", std::as_bytes(values)); }
  void add(std::string_view name, std::span<const std::uint32_t> values) { add(name, "u32", std::as_bytes(values)); }
  void add(std::string_view name, std::span<const std::uint16_t> values) { add(name, "u16", std::as_bytes(values)); }
  void add(std::string_view name, std::span<const std::uint8_t> values) { add(name, "u8", std::as_bytes(values)); }

  // {"ranks.host": {"type": "u32", "at": 1024, "count": 16}}: at is in bytes.
  const Json& directory() const { return directory_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void add(std::string_view name, std::string_view type, std::span<const std::byte> values);

  Json directory_ = Json::object();
  std::string bytes_;
};

}  // namespace ms::tracepp
