#include "ckpt/piece.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>
#include <utility>

namespace ms::ckpt {

namespace {

constexpr std::array<std::string_view, kStates> kStateNames = {"weight", "master", "exp_avg", "exp_avg_sq",
                                                               "momentum_buffer"};

constexpr std::size_t kMaxName = 512;
// A parameter's bytes, in any type, and those of thousands of them, stay below what a signed 64-bit number counts.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 50;

// Names are parts of HDF5 paths, keys of plans and words in messages: printable ASCII, without what separates.
bool name_is_sound(std::string_view name) {
  if (name.empty() || name.size() > kMaxName || name == "." || name == "..") return false;
  return std::all_of(name.begin(), name.end(),
                     [](char c) { return c > ' ' && c < 0x7f && c != '/' && c != '@' && c != '"' && c != '\\'; });
}

// rows * cols, both not negative, counts no more than kMaxElements.
bool countable(std::int64_t rows, std::int64_t cols) { return cols == 0 || rows <= kMaxElements / cols; }

}  // namespace

std::string_view to_string(State state) { return kStateNames[static_cast<std::size_t>(state)]; }

std::optional<State> state_from(std::string_view name) {
  const auto* const found = std::find(kStateNames.begin(), kStateNames.end(), name);
  if (found == kStateNames.end()) return std::nullopt;
  return static_cast<State>(found - kStateNames.begin());
}

Slice slice_of(const mesh::ShardSpec& shard, mesh::Range range) {
  MS_ASSERT(range.begin >= 0 && range.begin <= range.end && range.end <= shard.size(), "elements {}..{} of {} of {}",
            range.begin, range.end, shard.size(), shard.name);
  const std::int64_t rows = shard.logical_rows();
  const std::int64_t logical = rows * shard.cols;
  return {.name = shard.name,
          .global_rows = shard.global_rows,
          .global_cols = shard.global_cols,
          .row0 = std::min(shard.row0, shard.global_rows),
          .rows = rows,
          .col0 = shard.col0,
          .cols = shard.cols,
          .elements = {.begin = std::min(range.begin, logical), .end = std::min(range.end, logical)}};
}

Slice whole(std::string name, std::int64_t rows, std::int64_t cols) {
  return {.name = std::move(name),
          .global_rows = rows,
          .global_cols = cols,
          .row0 = 0,
          .rows = rows,
          .col0 = 0,
          .cols = cols,
          .elements = {.begin = 0, .end = rows * cols}};
}

std::string problem_with(const Piece& piece) {
  const Slice& s = piece.slice;
  if (!name_is_sound(s.name)) return "the parameter's name is not one";
  if (piece.dtype != tensor::DType::f32 && piece.dtype != tensor::DType::bf16) {
    return fmt::format("{} is of type {}, which is not stored", s.name, tensor::to_string(piece.dtype));
  }
  if (s.global_rows < 1 || s.global_cols < 1 || !countable(s.global_rows, s.global_cols)) {
    return fmt::format("{} has the shape {} x {}", s.name, s.global_rows, s.global_cols);
  }
  // Not row0 + rows > global_rows: the sum of two numbers from a file may overflow.
  if (s.row0 < 0 || s.rows < 1 || s.row0 > s.global_rows || s.rows > s.global_rows - s.row0 || s.col0 < 0 ||
      s.cols < 1 || s.col0 > s.global_cols || s.cols > s.global_cols - s.col0) {
    return fmt::format("{} has the shape {} x {} and a slice of {} rows from {}, {} columns from {}", s.name,
                       s.global_rows, s.global_cols, s.rows, s.row0, s.cols, s.col0);
  }
  if (s.elements.begin < 0 || s.elements.begin >= s.elements.end || s.elements.end > s.rows * s.cols) {
    return fmt::format("{} has a slice of {} elements, of which {} to {}", s.name, s.rows * s.cols, s.elements.begin,
                       s.elements.end);
  }
  return {};
}

std::string problem_with(const std::vector<Piece>& pieces) {
  std::set<std::tuple<State, std::string_view, std::int64_t>> begins;
  for (const Piece& piece : pieces) {
    if (std::string problem = problem_with(piece); !problem.empty()) return problem;
    if (!begins.emplace(piece.state, piece.slice.name, first_index(piece.slice)).second) {
      return fmt::format("two pieces of {} {} begin at the same element", to_string(piece.state), piece.slice.name);
    }
  }
  return {};
}

std::int64_t first_index(const Slice& slice) {
  const std::int64_t row = slice.row0 + slice.elements.begin / slice.cols;
  return row * slice.global_cols + slice.col0 + slice.elements.begin % slice.cols;
}

}  // namespace ms::ckpt
