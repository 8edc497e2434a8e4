// A half-open range of indices, [begin, end).
#pragma once

#include <cstdint>

namespace ms::mesh {

struct Range {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool contains(std::int64_t i) const { return begin <= i && i < end; }
  bool operator==(const Range&) const = default;
};

}  // namespace ms::mesh
