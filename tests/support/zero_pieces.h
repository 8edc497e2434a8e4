// The pieces of a rank under ZeRO, for tests of checkpoints.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "mesh/shard.h"

namespace ms::test {

struct ZeroPiece {
  std::size_t index;     // of the parameter
  mesh::Range elements;  // within the parameter
};

// The pieces of parameters laid end to end that rank `i` of `d` owns.
inline std::vector<ZeroPiece> zero_pieces(const std::vector<std::int64_t>& sizes, int d, int i) {
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const std::int64_t part = mesh::zero_part(total, d);
  std::vector<ZeroPiece> pieces;
  std::int64_t start = 0;  // of the parameter in the span
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    const std::int64_t begin = std::max(start, i * part);
    const std::int64_t end = std::min(start + sizes[index], (i + 1) * part);
    if (begin < end) pieces.push_back({.index = index, .elements = {.begin = begin - start, .end = end - start}});
    start += sizes[index];
  }
  return pieces;
}

}  // namespace ms::test
