#include "ckpt/diff.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "base/number.h"
#include "base/text.h"
#include "ckpt/batch.h"

namespace ms::ckpt {
namespace {

using tensor::DType;

// Where a comment begins: the first # outside a string.
std::size_t comment_begin(std::string_view line) {
  char quote = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      if (c == '\\' && quote == '"') ++i;
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '#') {
      return i;
    }
  }
  return line.size();
}

// The lines of a resolved configuration, which has one key a line.
std::map<std::string, std::string> keys_of(const std::string& toml) {
  std::map<std::string, std::string> keys;
  std::string section;
  for (std::size_t begin = 0; begin < toml.size();) {
    const std::size_t end = std::min(toml.find('\n', begin), toml.size());
    std::string_view line(toml.data() + begin, end - begin);
    begin = end + 1;
    line = trim(line.substr(0, comment_begin(line)));
    if (line.starts_with('[') && line.ends_with(']')) {
      section = std::string(trim(line.substr(1, line.size() - 2))) + ".";
    } else if (const std::size_t equals = line.find('='); equals != std::string_view::npos) {
      keys[section + std::string(trim(line.substr(0, equals)))] = trim(line.substr(equals + 1));
    }
  }
  return keys;
}

template <class T>
T value_at(std::span<const std::byte> bytes, std::size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
  return value;
}

double number_at(DType type, std::span<const std::byte> bytes, std::size_t i) {
  if (type == DType::f32) return value_at<float>(bytes, i);
  return std::bit_cast<float>(static_cast<std::uint32_t>(value_at<std::uint16_t>(bytes, i)) << 16);
}

std::string shape_of(const Piece* piece) {
  if (piece == nullptr) return {};
  return fmt::format("{} x {}", piece->slice.global_rows, piece->slice.global_cols);
}

using Key = std::pair<std::string, State>;

// Everything that is stored, each state of a parameter once and whole, in the order of the files.
std::vector<Piece> whole_states(const Manifest& manifest) {
  std::vector<Piece> pieces;
  std::set<Key> seen;
  for (const FileEntry& file : manifest.files) {
    for (const PlacedPiece& placed : file.pieces) {
      const Slice& slice = placed.piece.slice;
      if (!seen.insert({slice.name, placed.piece.state}).second) continue;
      pieces.push_back({.state = placed.piece.state,
                        .dtype = placed.piece.dtype,
                        .slice = whole(slice.name, slice.global_rows, slice.global_cols)});
    }
  }
  return pieces;
}

void add(std::vector<KeyDiff>& rows, const std::string& key, const std::string& a, const std::string& b) {
  if (a != b) rows.push_back({key, a, b});
}

void compare_manifests(const Manifest& a, const Manifest& b, Diff& result) {
  result.config = diff_config(a.config, b.config);
  add(result.place, "dp", std::to_string(a.dp), std::to_string(b.dp));
  add(result.place, "pp", std::to_string(a.pp), std::to_string(b.pp));
  add(result.place, "tp", std::to_string(a.tp), std::to_string(b.tp));
  add(result.place, "chunks", std::to_string(a.chunks), std::to_string(b.chunks));
  add(result.place, "zero", std::to_string(a.zero), std::to_string(b.zero));
  add(result.place, "run", a.run, b.run);
  add(result.position, "step", std::to_string(a.step), std::to_string(b.step));
  add(result.position, "dtype", a.dtype, b.dtype);
  add(result.position, "data.samples", std::to_string(a.data.samples), std::to_string(b.data.samples));
  add(result.position, "data.seed", std::to_string(a.data.seed), std::to_string(b.data.seed));
  add(result.position, "data.source", a.data.source, b.data.source);
  add(result.position, "rng", a.rng, b.rng);
}

}  // namespace

std::vector<KeyDiff> diff_config(const std::string& a, const std::string& b) {
  const std::map<std::string, std::string> of_a = keys_of(a), of_b = keys_of(b);
  std::set<std::string> names;
  for (const auto& [key, value] : of_a) names.insert(key);
  for (const auto& [key, value] : of_b) names.insert(key);
  std::vector<KeyDiff> rows;
  for (const std::string& key : names) {
    const auto in_a = of_a.find(key), in_b = of_b.find(key);
    add(rows, key, in_a == of_a.end() ? "" : in_a->second, in_b == of_b.end() ? "" : in_b->second);
  }
  return rows;
}

std::optional<int> context_ranks(const Manifest& manifest) {
  if (manifest.dp == 1) return 1;
  const std::map<std::string, std::string> keys = keys_of(manifest.config);
  const auto key = keys.find("mesh.cp");
  const std::optional<int> cp = key == keys.end() ? std::nullopt : whole_number<int>(key->second);
  return cp && *cp > 0 && manifest.dp % *cp == 0 ? cp : std::nullopt;
}

ValueDiff diff_values(DType type_a, std::span<const std::byte> a, DType type_b, std::span<const std::byte> b) {
  ValueDiff result;
  const auto size_a = static_cast<std::size_t>(tensor::size_of(type_a));
  const auto size_b = static_cast<std::size_t>(tensor::size_of(type_b));
  const std::size_t elements = a.size() / size_a;
  MS_ASSERT(elements == b.size() / size_b, "{} and {} elements", elements, b.size() / size_b);
  result.elements = static_cast<std::int64_t>(elements);
  if (type_a == type_b && std::memcmp(a.data(), b.data(), a.size()) == 0) return result;
  double squares = 0, squares_of_a = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    const double x = number_at(type_a, a, i), y = number_at(type_b, b, i), difference = x - y;
    squares_of_a += x * x;
    const bool same = type_a == type_b ? std::memcmp(&a[i * size_a], &b[i * size_b], size_a) == 0 : x == y;
    if (same) continue;
    ++result.differing;
    squares += difference * difference;
    result.max_abs = std::max(result.max_abs, std::abs(difference));
  }
  if (std::isnan(squares)) result.max_abs = std::numeric_limits<double>::quiet_NaN();
  if (squares != 0) result.relative_l2 = std::sqrt(squares / squares_of_a);
  return result;
}

bool Diff::equal() const {
  const auto is_model = [](const KeyDiff& row) {  // what is computed with the parameters; the first values are past
    return row.key.starts_with("model.") && row.key != "model.init_std";
  };
  return position.empty() && unmatched.empty() && std::none_of(config.begin(), config.end(), is_model) &&
         std::all_of(states.begin(), states.end(), [](const StateDiff& row) { return row.values.differing == 0; });
}

Diff diff(const Parameters& a, const Parameters& b, int threads, const std::function<void(std::int64_t)>& progress) {
  Diff result;
  compare_manifests(a.manifest(), b.manifest(), result);
  const PieceIndex index_a(a.manifest()), index_b(b.manifest());
  std::vector<Piece> of_a, of_b;
  for (const Piece& piece : whole_states(a.manifest())) {
    const Piece* other = index_b.find(piece.state, piece.slice.name);
    if (shape_of(&piece) != shape_of(other)) {
      add(result.unmatched, fmt::format("{} {}", to_string(piece.state), piece.slice.name), shape_of(&piece),
          shape_of(other));
      continue;
    }
    of_a.push_back(piece);
    of_b.push_back(piece);
    of_b.back().dtype = other->dtype;
  }
  for (const Piece& piece : whole_states(b.manifest())) {
    if (index_a.find(piece.state, piece.slice.name) == nullptr) {
      add(result.unmatched, fmt::format("{} {}", to_string(piece.state), piece.slice.name), {}, shape_of(&piece));
    }
  }
  BatchReader reader_a(a.path(), a.manifest(), of_a, kBatchBytes, threads);
  BatchReader reader_b(b.path(), b.manifest(), of_b, kBatchBytes, threads);
  std::int64_t done_bytes = 0;
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    result.states.push_back({.name = of_a[i].slice.name,
                             .state = of_a[i].state,
                             .rows = of_a[i].slice.global_rows,
                             .cols = of_a[i].slice.global_cols,
                             .values = diff_values(of_a[i].dtype, reader_a.next(), of_b[i].dtype, reader_b.next())});
    done_bytes += std::min(of_a[i].size_bytes(), of_b[i].size_bytes());
    if (progress) progress(done_bytes);
  }
  std::sort(result.states.begin(), result.states.end(), [](const StateDiff& x, const StateDiff& y) {
    return std::pair(x.name, x.state) < std::pair(y.name, y.state);
  });
  return result;
}

}  // namespace ms::ckpt
