// Slices of named parameters and of flat spans. A ShardSpec says which part of a parameter a rank holds, in terms that
// do not know the mesh: that is what checkpoints store and reshard. Pure; a cut that does not divide is a value, not an
// error, because only the caller can say which configuration key is to blame.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mesh/range.h"

namespace ms::mesh {

// A parameter is a matrix of global_rows x global_cols, row-major; a vector has one row. This rank holds the rows
// [row0, row0 + rows) and columns [col0, col0 + cols). Rows at and beyond global_rows are padding: they are stored,
// take part in GEMMs and stay zero, but are no part of the logical parameter.
struct ShardSpec {
  std::string name;
  std::int64_t global_rows = 0, global_cols = 0;
  std::int64_t row0 = 0, rows = 0, col0 = 0, cols = 0;
  bool replicated = false;  // every tp rank holds all of it; tp rank 0's copy counts in norms and is the one saved

  std::int64_t size() const { return rows * cols; }  // elements stored here, padding included
  std::int64_t global_size() const { return global_rows * global_cols; }
  std::int64_t logical_rows() const;  // rows of this slice that are not padding
  bool operator==(const ShardSpec&) const = default;
};

// Part i of n cut in `parts` equal parts; nothing where it does not divide.
std::optional<Range> cut_equal(std::int64_t n, int parts, int i);
// The smallest multiple of `multiple` that is at least n.
std::int64_t pad_to_multiple(std::int64_t n, std::int64_t multiple);

ShardSpec replicated(std::string name, std::int64_t rows, std::int64_t cols);
// Part i of `parts`, nothing where rows (columns) do not divide.
std::optional<ShardSpec> shard_rows(std::string name, std::int64_t rows, std::int64_t cols, int parts, int i);
std::optional<ShardSpec> shard_cols(std::string name, std::int64_t rows, std::int64_t cols, int parts, int i);
// As shard_rows, with the rows padded so that each part is a multiple of `multiple`: embeddings and heads, whose
// vocabulary need not divide.
ShardSpec shard_rows_padded(std::string name, std::int64_t rows, std::int64_t cols, int parts, int i,
                            std::int64_t multiple = 1);

// ZeRO: a flat span of n elements sharded over d ranks. Every part but the last non-empty one has the same length, a
// multiple of kZeroAlign, so one reduce-scatter or all-gather of zero_padded(n, d) elements moves them all. The parts
// cover [0, n) exactly once, in order; a part can be shorter than zero_part, or empty where n is small.
inline constexpr std::int64_t kZeroAlign = 64;
std::int64_t zero_part(std::int64_t n, int d);    // elements of a part, padding included
std::int64_t zero_padded(std::int64_t n, int d);  // d * zero_part

}  // namespace ms::mesh
