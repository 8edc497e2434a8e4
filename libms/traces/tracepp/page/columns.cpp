#include "tracepp/page/columns.h"

#include <charconv>

namespace ms::tracepp {

void Columns::add(std::string_view name, std::string_view type, std::span<const std::byte> values) {
  constexpr std::size_t kAligned = 8;
  std::size_t value_bytes = 0;
  std::from_chars(type.data() + 1, type.data() + type.size(), value_bytes);
  value_bytes /= 8;  // the type says bits
  bytes_.resize((bytes_.size() + kAligned - 1) / kAligned * kAligned);
  directory_[name] = {{"type", type}, {"at", bytes_.size()}, {"count", values.size() / value_bytes}};
  bytes_.append(reinterpret_cast<const char*>(values.data()), values.size());
}

}  // namespace ms::tracepp
