// The reshard plan. Slices are taken apart into rectangles of the parameter; what a wanted piece still lacks is kept as
// rectangles too, and every source in turn takes from them what it has, so that no element is copied twice and none is
// forgotten, whatever the files hold.
#include "ckpt/reshard.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace ms::ckpt {

namespace {

constexpr std::size_t kListed = 10;  // problems that a message lists

struct Rect {  // of the parameter
  std::int64_t row0, row1, col0, col1;
  bool empty() const { return row0 >= row1 || col0 >= col1; }
  std::int64_t size() const { return (row1 - row0) * (col1 - col0); }
};

std::int64_t total(std::span<const Rect> rects) {
  return std::accumulate(rects.begin(), rects.end(), std::int64_t{0},
                         [](std::int64_t sum, const Rect& rect) { return sum + rect.size(); });
}

Rect intersection(const Rect& a, const Rect& b) {
  return {std::max(a.row0, b.row0), std::min(a.row1, b.row1), std::max(a.col0, b.col0), std::min(a.col1, b.col1)};
}

// At most three: the rest of a first row, whole rows, the beginning of a last row.
std::vector<Rect> rects_of(const Slice& slice) {
  std::vector<Rect> rects;
  const auto add = [&](std::int64_t row0, std::int64_t row1, std::int64_t col0, std::int64_t col1) {
    const Rect rect{slice.row0 + row0, slice.row0 + row1, slice.col0 + col0, slice.col0 + col1};
    if (!rect.empty()) rects.push_back(rect);
  };
  if (slice.size() <= 0) return rects;
  const std::int64_t first = slice.elements.begin / slice.cols;
  const std::int64_t first_col = slice.elements.begin % slice.cols;
  const std::int64_t last = slice.elements.end / slice.cols;
  const std::int64_t last_col = slice.elements.end % slice.cols;
  if (first == last) {
    add(first, first + 1, first_col, last_col);
    return rects;
  }
  if (first_col > 0) add(first, first + 1, first_col, slice.cols);
  add(first_col > 0 ? first + 1 : first, last, 0, slice.cols);
  add(last, last + 1, 0, last_col);
  return rects;
}

// Where an element of the parameter lies in a slice, which has it.
std::int64_t place(const Slice& slice, std::int64_t row, std::int64_t col) {
  return (row - slice.row0) * slice.cols + (col - slice.col0) - slice.elements.begin;
}

// The copies of rectangles that both slices have: rows that follow each other on both sides become one.
std::vector<Overlap> copies_of(const Slice& source, const Slice& wanted, std::span<const Rect> rects) {
  std::vector<Overlap> copies;
  for (const Rect& rect : rects) {
    Overlap copy{.from = place(source, rect.row0, rect.col0),
                 .to = place(wanted, rect.row0, rect.col0),
                 .rows = rect.row1 - rect.row0,
                 .row_elements = rect.col1 - rect.col0,
                 .from_stride = source.cols,
                 .to_stride = wanted.cols};
    if (copy.rows == 1 || (copy.row_elements == copy.from_stride && copy.row_elements == copy.to_stride)) {
      copy.row_elements = copy.from_stride = copy.to_stride = copy.size();
      copy.rows = 1;
    }
    copies.push_back(copy);
  }
  std::sort(copies.begin(), copies.end(), [](const Overlap& a, const Overlap& b) { return a.from < b.from; });
  std::vector<Overlap> merged;
  for (const Overlap& copy : copies) {
    Overlap* before = merged.empty() ? nullptr : &merged.back();
    if (before != nullptr && before->rows == 1 && copy.rows == 1 && before->from + before->row_elements == copy.from &&
        before->to + before->row_elements == copy.to) {
      before->row_elements += copy.row_elements;
      before->from_stride = before->to_stride = before->row_elements;
    } else {
      merged.push_back(copy);
    }
  }
  return merged;
}

std::vector<Rect> common(std::span<const Rect> a, std::span<const Rect> b) {
  std::vector<Rect> rects;
  for (const Rect& of_a : a) {
    for (const Rect& of_b : b) {
      if (const Rect both = intersection(of_a, of_b); !both.empty()) rects.push_back(both);
    }
  }
  return rects;
}

// Takes `taken`, which lies in one of them, out of the rectangles. The rows above and below it stay whole, so that what
// else a slice takes, which is in other rows, lies in one of them still.
void remove(std::vector<Rect>& rects, const Rect& taken) {
  const auto holder = std::find_if(rects.begin(), rects.end(), [&](const Rect& rect) {
    return rect.row0 <= taken.row0 && taken.row1 <= rect.row1 && rect.col0 <= taken.col0 && taken.col1 <= rect.col1;
  });
  MS_ASSERT(holder != rects.end(), "a rectangle that nothing holds");
  const Rect rect = *holder;
  *holder = rects.back();
  rects.pop_back();
  for (const Rect& rest :
       {Rect{rect.row0, taken.row0, rect.col0, rect.col1}, Rect{taken.row1, rect.row1, rect.col0, rect.col1},
        Rect{taken.row0, taken.row1, rect.col0, taken.col0}, Rect{taken.row0, taken.row1, taken.col1, rect.col1}}) {
    if (!rest.empty()) rects.push_back(rest);
  }
}

// From the first to behind the last element, counted row by row in the whole parameter.
mesh::Range span_of(const Slice& slice) {
  const auto position = [&](std::int64_t element) {
    return (slice.row0 + element / slice.cols) * slice.global_cols + slice.col0 + element % slice.cols;
  };
  return {.begin = position(slice.elements.begin), .end = position(slice.elements.end - 1) + 1};
}

std::string key_of(State state, const std::string& name) { return fmt::format("{} {}", to_string(state), name); }

std::string shape_of(const Piece& piece) {
  return fmt::format("{} x {} {}", piece.slice.global_rows, piece.slice.global_cols, tensor::to_string(piece.dtype));
}

bool same_kind(const Piece& a, const Piece& b) {
  return a.dtype == b.dtype && a.slice.global_rows == b.slice.global_rows && a.slice.global_cols == b.slice.global_cols;
}

// "a; b; and 3 more", each once.
std::string listed(const std::vector<std::string>& problems) {
  std::vector<std::string> distinct;
  std::set<std::string_view> seen;
  for (const std::string& problem : problems) {
    if (seen.insert(problem).second) distinct.push_back(problem);
  }
  const std::size_t shown = std::min(kListed, distinct.size());
  std::string text = fmt::format("{}", fmt::join(std::span(distinct).first(shown), "; "));
  if (distinct.size() > shown) text += fmt::format("; and {} more", distinct.size() - shown);
  return text;
}

}  // namespace

std::vector<Overlap> overlaps(const Slice& source, const Slice& wanted) {
  return copies_of(source, wanted, common(rects_of(source), rects_of(wanted)));
}

PieceIndex::PieceIndex(const Manifest& manifest) : manifest_(manifest) {
  for (std::size_t file = 0; file < manifest.files.size(); ++file) {
    const FileEntry& entry = manifest.files[file];
    for (std::size_t i = 0; i < entry.pieces.size(); ++i) {
      const Piece& held = entry.pieces[i].piece;
      MS_ASSERT(problem_with(held).empty(), "{} holds a piece of which {}", entry.name, problem_with(held));
      std::vector<Source>& sources = sources_[key_of(held.state, held.slice.name)];
      if (!sources.empty() && !same_kind(piece(sources.front()), held)) {
        throw Error(
            "ckpt.manifest", Blame::storage,
            fmt::format("{} of {} is {} in {}, but {} in {}", to_string(held.state), held.slice.name, shape_of(held),
                        entry.name, shape_of(piece(sources.front())), manifest.files[sources.front().file].name));
      }
      sources.push_back({.file = file, .piece = i, .span = span_of(held.slice), .reach = 0});
    }
  }
  for (auto& [key, sources] : sources_) {
    std::stable_sort(sources.begin(), sources.end(),
                     [](const Source& a, const Source& b) { return a.span.begin < b.span.begin; });
    std::int64_t reach = 0;
    for (Source& source : sources) source.reach = reach = std::max(reach, source.span.end);
  }
}

const Piece* PieceIndex::find(State state, const std::string& name) const {
  const auto found = sources_.find(key_of(state, name));
  return found == sources_.end() ? nullptr : &piece(found->second.front());
}

std::vector<std::string> PieceIndex::parameters() const {
  std::set<std::string> names;
  for (const auto& [key, sources] : sources_) names.insert(piece(sources.front()).slice.name);
  return {names.begin(), names.end()};
}

std::int64_t PieceIndex::fill(const std::vector<Source>& sources, const Piece& wanted, std::size_t want,
                              std::vector<PlannedCopy>& copies) const {
  std::vector<Rect> lacking = rects_of(wanted.slice);
  if (lacking.empty()) return 0;
  const mesh::Range span = span_of(wanted.slice);
  std::vector<Source> candidates;
  for (auto source =
           std::partition_point(sources.begin(), sources.end(), [&](const Source& s) { return s.reach <= span.begin; });
       source != sources.end() && source->span.begin < span.end; ++source) {
    if (source->span.end > span.begin) candidates.push_back(*source);
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Source& a, const Source& b) { return std::pair(a.file, a.piece) < std::pair(b.file, b.piece); });
  const std::vector<Rect> all = lacking;
  const std::int64_t element_bytes = tensor::size_of(wanted.dtype);
  for (const Source& source : candidates) {
    if (lacking.empty()) break;
    const PlacedPiece& placed = manifest_.files[source.file].pieces[source.piece];
    const Slice& slice = placed.piece.slice;
    const std::vector<Rect> held = rects_of(slice);
    const std::vector<Rect> taken = common(held, lacking);
    for (const Rect& rect : taken) remove(lacking, rect);
    // `taken` is split into more rectangles than `shared`; it is needed only if an earlier file had some of them.
    const std::vector<Rect> shared = common(held, all);
    for (const Overlap& part : copies_of(slice, wanted.slice, total(taken) == total(shared) ? shared : taken)) {
      copies.push_back({.file = source.file,
                        .want = want,
                        .file_offset = placed.offset + part.from * element_bytes,
                        .want_offset = part.to * element_bytes,
                        .rows = part.rows,
                        .row_bytes = part.row_elements * element_bytes,
                        .file_stride = part.from_stride * element_bytes,
                        .want_stride = part.to_stride * element_bytes});
    }
  }
  return total(lacking);
}

std::vector<PlannedCopy> PieceIndex::plan(const std::vector<Piece>& wanted) const {
  std::vector<const std::vector<Source>*> sources;
  std::vector<std::string> problems;
  for (const Piece& want : wanted) {
    MS_ASSERT(want.slice.size() == 0 || problem_with(want).empty(), "wanted is a piece of which {}",
              problem_with(want));
    const std::string key = key_of(want.state, want.slice.name);
    const auto found = sources_.find(key);
    sources.push_back(found == sources_.end() ? nullptr : &found->second);
    const auto problem = [&](std::string_view has) {
      problems.push_back(fmt::format("{} of {}: the checkpoint has {}, the run wants {}", to_string(want.state),
                                     want.slice.name, has, shape_of(want)));
    };
    if (found == sources_.end()) {
      problem("none");
    } else if (const Piece& has = piece(found->second.front()); !same_kind(has, want)) {
      problem(shape_of(has));
    }
  }
  if (!problems.empty()) {
    throw user_error("ckpt.mismatch",
                     fmt::format("the checkpoint does not hold what the run wants: {}", listed(problems)));
  }
  std::vector<PlannedCopy> copies;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::int64_t missing = fill(*sources[i], wanted[i], i, copies);
    if (missing > 0) {
      problems.push_back(fmt::format("{} of {}: {} of {} elements are in no file", to_string(wanted[i].state),
                                     wanted[i].slice.name, missing, wanted[i].slice.size()));
    }
  }
  if (!problems.empty()) {
    throw Error("ckpt.incomplete", Blame::storage,
                fmt::format("the checkpoint lacks parts of parameters: {}", listed(problems)));
  }
  std::sort(copies.begin(), copies.end(), [](const PlannedCopy& a, const PlannedCopy& b) {
    return std::tuple(a.file, a.file_offset, a.want, a.want_offset) <
           std::tuple(b.file, b.file_offset, b.want, b.want_offset);
  });
  return copies;
}

}  // namespace ms::ckpt
