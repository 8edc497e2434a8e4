// The reshard plan: which bytes of which file make up the pieces that a rank wants, whatever layout wrote the files and
// whatever layout wants them. Pure.
//
// A slice is at most three rectangles of its parameter: the rest of a first row, whole rows, the beginning of a last
// row. Two slices share the pairwise intersections of their rectangles, and each intersection is one strided copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "ckpt/manifest.h"

namespace ms::ckpt {

// A strided copy from a source slice to a wanted one, in elements from the beginning of either. Of one row the strides
// are row_elements.
struct Overlap {
  std::int64_t from = 0, to = 0;
  std::int64_t rows = 0, row_elements = 0;
  std::int64_t from_stride = 0, to_stride = 0;
  std::int64_t size() const { return rows * row_elements; }
  bool operator==(const Overlap&) const = default;
};
// Returns the elements that two slices of the same parameter share: every element once, sorted by `from`. Neighbouring
// rows that are contiguous on both sides are one row.
std::vector<Overlap> overlaps(const Slice& source, const Slice& wanted);

// One copy of the plan, in bytes: from a file to piece `want`.
struct PlannedCopy {
  std::size_t file = 0;  // index in Manifest::files
  std::size_t want = 0;  // index in the wanted pieces
  std::int64_t file_offset = 0, want_offset = 0;
  std::int64_t rows = 0, row_bytes = 0;
  std::int64_t file_stride = 0, want_stride = 0;
};

// Finds pieces by state and parameter; made once for a manifest, which outlives it.
class PieceIndex {
 public:
  // Error("ckpt.manifest", storage) where files disagree on the shape or type of a state of a parameter.
  explicit PieceIndex(const Manifest& manifest);

  const Manifest& manifest() const { return manifest_; }
  // The state of a parameter as stored, without its slice: shape and type. nullptr: the checkpoint does not have it.
  const Piece* find(State state, const std::string& name) const;
  std::vector<std::string> parameters() const;  // sorted
  // Copies that fill every wanted piece, each element exactly once, sorted by file and offset. Elements that several
  // files hold come from the first of them.
  // Error("ckpt.mismatch", user) where a parameter is missing, or has another shape or type: all problems in one
  // message, at most ten listed. Error("ckpt.incomplete", storage) where elements of a parameter are in no file.
  std::vector<PlannedCopy> plan(const std::vector<Piece>& wanted) const;

 private:
  struct Source {
    std::size_t file, piece;
    mesh::Range span;    // from its first to behind its last element, counted row by row in the whole parameter
    std::int64_t reach;  // the largest span.end up to here
  };
  const Piece& piece(const Source& source) const { return manifest_.files[source.file].pieces[source.piece].piece; }
  // Appends the copies that fill a wanted piece; returns how many of its elements are in no file.
  std::int64_t fill(const std::vector<Source>& sources, const Piece& wanted, std::size_t want,
                    std::vector<PlannedCopy>& copies) const;

  const Manifest& manifest_;
  std::unordered_map<std::string, std::vector<Source>> sources_;  // by "STATE NAME"; each by span.begin
};

}  // namespace ms::ckpt
