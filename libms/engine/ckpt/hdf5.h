// The only user of the HDF5 library. A checkpoint's data files are HDF5 that anyone can read (h5dump, h5py), one
// contiguous dataset a piece. The library only makes the skeleton: groups, datasets and attributes; it reserves the
// space for the data and reports its offset. blocks.h writes and reads the data itself, because the library has one
// lock for all threads of a process and cannot hash what it writes.
//
// It reads no file: metadata that somebody made up breaks the library's memory, whatever their checksums and hashes.
//
// In a file: /STATE/NAME, or /STATE/NAME@INDEX (first_index of the slice) where a file holds several pieces of one
// parameter; bf16 as a float type of its own (sign 1, exponent 8, mantissa 7), f32 as IEEE little-endian; a piece that
// covers its block whole has the block's shape, any other is flat. Attributes of a dataset: name, global_shape (rows,
// columns), slice (row0, rows, col0, cols), elements (begin, end); of the file: ms_checkpoint, the format's version.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/piece.h"

namespace ms::ckpt {

inline constexpr std::int64_t kDataAlignment = 64;  // of a dataset's first byte in its file

struct PlacedPiece {
  Piece piece;
  std::int64_t offset = 0;  // of its first byte in the file; a multiple of kDataAlignment
  bool operator==(const PlacedPiece&) const = default;
};

struct FileLayout {
  std::vector<PlacedPiece> pieces;  // in the order they were given
  std::int64_t size_bytes = 0;
};

// Creates (or truncates) the file with a dataset for every piece, data unwritten, and closes it. The same pieces give
// the same bytes and the same layout, always: nothing of time or place is in the file. Pieces that problem_with() finds
// something wrong with are a bug.
// Throws Error("ckpt.hdf5", storage) with the path and what HDF5 says.
FileLayout make_skeleton(const std::string& path, const std::vector<Piece>& pieces);

// An upper bound of the file's size that needs no file: for plans of memory.
std::int64_t size_bound(const std::vector<Piece>& pieces);

}  // namespace ms::ckpt
