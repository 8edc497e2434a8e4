// A half-open range of indices, [begin, end).
#pragma once

#include <algorithm>
#include <cstdint>

namespace ms::mesh {

struct Range {
  std::int64_t begin = 0, end = 0;

  std::int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool contains(std::int64_t i) const { return begin <= i && i < end; }
  bool operator==(const Range&) const = default;
};

// Returns what two ranges share; where that is nothing, an empty range.
constexpr Range intersect(const Range& a, const Range& b) {
  const std::int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
  return {begin, std::max(begin, end)};
}

}  // namespace ms::mesh
