// Layouts for tests of resharding: parameters cut as a model cuts them, over tp and then over dp, and elements that
// carry their number, so that a test can tell where a byte came from.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "ckpt/piece.h"
#include "mesh/shard.h"
#include "support/zero_pieces.h"

namespace ms::ckpt::layouts {

// Numbers from a seed, the same everywhere.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : seed_(seed) {}
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(uniform_below(seed_, 0, next_++, static_cast<std::uint64_t>(n)));
  }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }

 private:
  std::uint64_t seed_, next_ = 0;
};

enum class Cut { none, rows, cols, padded_rows };

struct Param {
  std::string name;
  std::int64_t rows = 1, cols = 1;
  Cut cut = Cut::none;
};

// What tp rank `i` of `tp` holds; a cut that does not divide is none.
inline mesh::ShardSpec shard(const Param& param, int tp, int i) {
  const auto whole_of = [&] { return mesh::replicated(param.name, param.rows, param.cols); };
  switch (param.cut) {
    case Cut::rows: return mesh::shard_rows(param.name, param.rows, param.cols, tp, i).value_or(whole_of());
    case Cut::cols: return mesh::shard_cols(param.name, param.rows, param.cols, tp, i).value_or(whole_of());
    case Cut::padded_rows: return mesh::shard_rows_padded(param.name, param.rows, param.cols, tp, i);
    case Cut::none: break;
  }
  return whole_of();
}

// The slices of tp rank `tp_rank`'s parameters, laid end to end, that dp rank `dp_rank` owns.
inline std::vector<Slice> owned(const std::vector<Param>& params, int tp, int tp_rank, int dp, int dp_rank) {
  std::vector<mesh::ShardSpec> shards;
  std::vector<std::int64_t> sizes;
  for (const Param& param : params) {
    shards.push_back(shard(param, tp, tp_rank));
    sizes.push_back(shards.back().size());
  }
  std::vector<Slice> slices;
  for (const test::ZeroPiece& part : test::zero_pieces(sizes, dp, dp_rank)) {
    Slice slice = slice_of(shards[part.index], part.elements);
    if (slice.size() > 0) slices.push_back(std::move(slice));
  }
  return slices;
}

// The number of element `i` of a slice in the whole parameter.
inline std::int64_t number(const Slice& slice, std::int64_t i) {
  const std::int64_t at = slice.elements.begin + i;
  return (slice.row0 + at / slice.cols) * slice.global_cols + slice.col0 + at % slice.cols;
}

// An element that says its number and a tag, in as many bytes as its type has.
inline void put(std::span<std::byte> bytes, tensor::DType dtype, std::int64_t i, std::int64_t value) {
  std::memcpy(bytes.data() + i * tensor::size_of(dtype), &value, static_cast<std::size_t>(tensor::size_of(dtype)));
}
inline std::int64_t get(std::span<const std::byte> bytes, tensor::DType dtype, std::int64_t i) {
  std::int64_t value = 0;
  std::memcpy(&value, bytes.data() + i * tensor::size_of(dtype), static_cast<std::size_t>(tensor::size_of(dtype)));
  return value;
}

}  // namespace ms::ckpt::layouts
