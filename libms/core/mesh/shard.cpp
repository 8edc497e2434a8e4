#include "mesh/shard.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace ms::mesh {

std::int64_t ShardSpec::logical_rows() const { return std::clamp<std::int64_t>(global_rows - row0, 0, rows); }

std::optional<Range> cut_equal(std::int64_t n, int parts, int i) {
  MS_ASSERT(n >= 0 && parts >= 1 && i >= 0 && i < parts, "part {} of {} of {}", i, parts, n);
  if (n % parts != 0) return std::nullopt;
  const std::int64_t part = n / parts;
  return Range{.begin = i * part, .end = (i + 1) * part};
}

std::int64_t pad_to_multiple(std::int64_t n, std::int64_t multiple) {
  MS_ASSERT(n >= 0 && multiple >= 1, "{} padded to a multiple of {}", n, multiple);
  return (n + multiple - 1) / multiple * multiple;
}

ShardSpec replicated(std::string name, std::int64_t rows, std::int64_t cols) {
  return {.name = std::move(name),
          .global_rows = rows,
          .global_cols = cols,
          .row0 = 0,
          .rows = rows,
          .col0 = 0,
          .cols = cols,
          .replicated = true};
}

std::optional<ShardSpec> shard_rows(std::string name, std::int64_t rows, std::int64_t cols, int parts, int i) {
  const auto cut = cut_equal(rows, parts, i);
  if (!cut) return std::nullopt;
  ShardSpec spec = replicated(std::move(name), rows, cols);
  spec.row0 = cut->begin, spec.rows = cut->size(), spec.replicated = false;
  return spec;
}

std::optional<ShardSpec> shard_cols(std::string name, std::int64_t rows, std::int64_t cols, int parts, int i) {
  const auto cut = cut_equal(cols, parts, i);
  if (!cut) return std::nullopt;
  ShardSpec spec = replicated(std::move(name), rows, cols);
  spec.col0 = cut->begin, spec.cols = cut->size(), spec.replicated = false;
  return spec;
}

ShardSpec shard_rows_padded(std::string name, std::int64_t rows, std::int64_t cols, int parts, int i,
                            std::int64_t multiple) {
  ShardSpec spec = *shard_rows(std::move(name), pad_to_multiple(rows, parts * multiple), cols, parts, i);
  spec.global_rows = rows;
  return spec;
}

std::int64_t zero_part(std::int64_t n, int d) {
  MS_ASSERT(n >= 0 && d >= 1, "{} elements over {} ranks", n, d);
  return pad_to_multiple((n + d - 1) / d, kZeroAlign);
}

std::int64_t zero_padded(std::int64_t n, int d) { return d * zero_part(n, d); }

}  // namespace ms::mesh
