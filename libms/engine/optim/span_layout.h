// A span of parameters as the optimizer knows it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mesh/range.h"

namespace ms::optim {

// How a tp rank shares a matrix of a layer, for optimizers that take matrices whole. No rows: not such a matrix.
struct MatrixCut {
  std::int64_t rows = 0, cols = 0;  // of the whole
  int shards = 1;                   // equal ones, by tp rank; 1: each tp rank holds all of it
  bool by_cols = false;

  explicit operator bool() const { return rows > 0; }
  std::int64_t shard_rows() const { return by_cols ? rows : rows / shards; }
  std::int64_t shard_cols() const { return by_cols ? cols / shards : cols; }
};

// One parameter's elements in a span.
struct ParamRange {
  std::string name;
  std::int64_t begin = 0, end = 0;
  bool decay = false;
  MatrixCut matrix = {};
};
struct SpanLayout {
  std::vector<ParamRange> params;  // by begin
  std::int64_t numel = 0;          // a multiple of dp * 64
  std::int64_t replicated = 0;     // [0, replicated): held whole by every tp rank
  std::int64_t partial = 0;        // [0, partial) of these: the gradients are partial sums over tp
  bool experts = false;            // held by an edp group, which takes the place of dp
  bool shared = false;             // also on another pipeline stage; gradients are summed over that pair
  bool counts_in_norm = true;
  // Where a backward only adds to the gradients: they are cleared before the first one. It sets the others, and what
  // lies between parameters stays zero.
  std::vector<mesh::Range> cleared;
};

}  // namespace ms::optim
