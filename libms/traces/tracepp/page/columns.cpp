#include "tracepp/page/columns.h"

#include "base/number.h"

namespace ms::tracepp {

void Columns::add(std::string_view name, std::string_view type, std::span<const std::byte> values) {
  constexpr std::size_t kAligned = 8;
  const std::size_t value_bytes = leading_number<std::size_t>(type.substr(1)).value_or(0) / 8;  // the type says bits
  bytes_.resize((bytes_.size() + kAligned - 1) / kAligned * kAligned);
  directory_[name] = {{"type", type}, {"at", bytes_.size()}, {"count", values.size() / value_bytes}};
  bytes_.append(reinterpret_cast<const char*>(values.data()), values.size());
}

}  // namespace ms::tracepp
