// Describes which part of the model's state lies where, as pure data. A piece is one state of some elements of one
// logical parameter. It knows no mesh, no rank and no ZeRO, so that a checkpoint loads in any layout. Pieces of a run
// are made from spans (train), written to files (FileLayout), listed in the manifest and matched by the reshard plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/range.h"
#include "mesh/shard.h"
#include "tensor/tensor.h"

namespace ms::ckpt {

enum class State : std::uint8_t {
  weight,   // the parameter in the compute type
  master,   // its f32 original; absent where the compute type is f32
  exp_avg,  // first and second moment of the optimizer, f32 or bf16
  exp_avg_sq,
  momentum_buffer,  // f32; in place of the moments where the optimizer takes a matrix whole
};
inline constexpr int kStates = 5;
std::string_view to_string(State state);
std::optional<State> state_from(std::string_view name);

// The block of `rows` x `cols` at (row0, col0) of a parameter of global_rows x global_cols (a vector has one row), and
// of that block the elements [begin, end), counted row by row. A share of ZeRO is a range of a flat span and need not
// begin or end with a row; everything else covers its block whole. Rows of padding are no part of any slice.
struct Slice {
  std::string name;
  std::int64_t global_rows = 0, global_cols = 0;
  std::int64_t row0 = 0, rows = 0, col0 = 0, cols = 0;
  mesh::Range elements;

  std::int64_t size() const { return elements.size(); }
  bool operator==(const Slice&) const = default;
};

// The elements [range) of a rank's shard, padding left out; the result may be empty.
Slice slice_of(const mesh::ShardSpec& shard, mesh::Range range);
// All of a parameter.
Slice whole(std::string name, std::int64_t rows, std::int64_t cols);

struct Piece {
  State state = State::weight;
  tensor::DType dtype = tensor::DType::f32;
  Slice slice;

  std::int64_t size_bytes() const { return slice.size() * tensor::size_of(dtype); }
  bool operator==(const Piece&) const = default;
};

// Why no data file may hold this piece, in words for a message; empty: nothing is wrong. Everything that is read from
// files goes through here, so whoever has a piece may multiply its numbers without fear.
std::string problem_with(const Piece& piece);
// The same of pieces that one file is to hold: two must not begin at the same element of a state of a parameter.
std::string problem_with(const std::vector<Piece>& pieces);
// Where the first element of a slice that is not empty lies in its parameter, counted row by row. Slices of a parameter
// that share no element differ in it.
std::int64_t first_index(const Slice& slice);

}  // namespace ms::ckpt
