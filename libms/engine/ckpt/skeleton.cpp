#include "ckpt/skeleton.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/handle.h"
#include "ckpt/blocks.h"
#include "ckpt/hdf5.h"
#include "ckpt/scratch_file.h"

namespace ms::ckpt {

namespace {

std::string describe(const PlacedPiece& placed) {
  const Slice& s = placed.piece.slice;
  return fmt::format("{} of {}, {} of {} x {}, rows {}+{}, columns {}+{}, elements {}..{}, at byte {}",
                     to_string(placed.piece.state), s.name, tensor::to_string(placed.piece.dtype), s.global_rows,
                     s.global_cols, s.row0, s.rows, s.col0, s.cols, s.elements.begin, s.elements.end, placed.offset);
}

void read_fully(int fd, const std::string& path, std::int64_t at, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t got = ::pread(fd, to.data(), to.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      throw Error("ckpt.read", Blame::storage,
                  fmt::format("cannot read '{}': {}", path, got < 0 ? errno_text(errno) : "it became shorter"));
    }
    at += got;
    to = to.subspan(static_cast<std::size_t>(got));
  }
}

// Compares bytes [begin, end) of two files; returns where they first differ.
std::optional<std::int64_t> first_difference(int a, int b, const std::string& path, std::int64_t begin,
                                             std::int64_t end) {
  constexpr std::int64_t kPart = std::int64_t{64} << 10;
  std::vector<std::byte> of_a(kPart), of_b(kPart);
  for (std::int64_t at = begin; at < end; at += kPart) {
    const auto bytes = static_cast<std::size_t>(std::min(kPart, end - at));
    read_fully(a, path, at, std::span(of_a).first(bytes));
    read_fully(b, "the skeleton", at, std::span(of_b).first(bytes));
    const auto differs = std::mismatch(of_a.begin(), of_a.begin() + static_cast<std::ptrdiff_t>(bytes), of_b.begin());
    if (differs.first != of_a.begin() + static_cast<std::ptrdiff_t>(bytes)) return at + (differs.first - of_a.begin());
  }
  return std::nullopt;
}

}  // namespace

std::string structure_problem(const FileEntry& entry, const std::string& path) {
  std::vector<Piece> pieces;
  std::vector<std::pair<std::int64_t, std::int64_t>> data;  // begin and end of every dataset
  for (const PlacedPiece& placed : entry.pieces) {
    pieces.push_back(placed.piece);
    data.emplace_back(placed.offset, placed.offset + placed.piece.size_bytes());
  }
  if (std::string problem = problem_with(pieces); !problem.empty())
    return fmt::format("'{}' does not fit the manifest: {}", path, problem);

  const ScratchFile skeleton(std::filesystem::temp_directory_path());  // sparse where data would be
  const FileLayout layout = make_skeleton(skeleton.path(), pieces);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (entry.pieces[i] == layout.pieces[i]) continue;
    return fmt::format("'{}' does not match the manifest: {}; expected at byte {}", path, describe(entry.pieces[i]),
                       layout.pieces[i].offset);
  }
  if (layout.size_bytes != entry.size_bytes) {
    return fmt::format("'{}' has {} bytes, and the pieces of the manifest make {}", path, entry.size_bytes,
                       layout.size_bytes);
  }

  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw Error("ckpt.read", Blame::storage, fmt::format("cannot open '{}': {}", path, errno_text(errno)));
  std::sort(data.begin(), data.end());
  data.emplace_back(entry.size_bytes, entry.size_bytes);
  std::int64_t at = 0;
  for (const auto& [begin, end] : data) {
    if (const auto differs = first_difference(file.get(), skeleton.fd(), path, at, begin)) {
      return fmt::format("the HDF5 structure of '{}' is not that of the manifest's pieces: byte {} differs", path,
                         *differs);
    }
    at = end;
  }
  return {};
}

}  // namespace ms::ckpt
