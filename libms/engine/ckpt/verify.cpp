// Implements the verification of load.h.
// Looks for everything about a checkpoint that can be wrong, file by file.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/handle.h"
#include "ckpt/blocks.h"
#include "ckpt/directory.h"
#include "ckpt/file_pool.h"
#include "ckpt/hdf5.h"
#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "ckpt/scratch_file.h"

namespace ms::ckpt {
namespace {

// The HDF5 structure of a data file against that of the manifest's pieces. The same pieces make the same bytes, so they
// are compared as bytes: HDF5 reads nothing, for crafted metadata breaks its memory however right the hashes are.

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

// Returns what is wrong with the file of this entry, data apart; empty: nothing. Its size is the entry's. Throws
// Error("ckpt.read", storage) where it cannot be read, Error("ckpt.write", storage) where there is no room for the
// other structure among temporary files.
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

namespace fs = std::filesystem;

// Damage is proven. Whether what the system refused to read is sound, nobody knows.
struct Problems {
  std::vector<std::string> damage = {};
  std::vector<std::string> refusals = {};

  bool empty() const { return damage.empty() && refusals.empty(); }
  void add(Problems&& more) {
    std::ranges::move(more.damage, std::back_inserter(damage));
    std::ranges::move(more.refusals, std::back_inserter(refusals));
  }
};

// Runs `check` and adds the storage error that it throws, if it does. Any other error is rethrown.
template <class Check>
void add_thrown(Problems& problems, Check&& check) {
  try {
    check();
  } catch (const Error& error) {
    if (error.blame() != Blame::storage) throw;
    const bool refused =
        error.kind() == "ckpt.read" || error.kind() == "ckpt.write" || error.kind().starts_with("file.");
    (refused ? problems.refusals : problems.damage).push_back(error.message());
  }
}

// Every damaged block of a file in which there is one.
Problems damaged_blocks(const BlockFile& file) {
  Problems problems;
  std::byte first{};
  for (std::int64_t block = 0; block < block_count(file.size_bytes); ++block) {
    const Transfer touch{.file_offset = block * kBlockBytes, .row_bytes = 1, .to = &first};
    add_thrown(problems, [&] { read_blocks(file, std::span(&touch, 1), false, 1); });
  }
  return problems;
}

Problems problems_of_file(const FileEntry& entry, const std::string& path, int threads,
                          const std::function<void(std::int64_t)>& progress) {
  const BlockFile file{.path = path, .size_bytes = entry.size_bytes, .hashes = entry.hashes};
  Problems problems;
  std::error_code status_error;
  const bool missing = !fs::exists(path, status_error) && !status_error;
  add_thrown(problems, [&] { read_blocks(file, {}, true, threads, progress); });
  if (missing) problems.damage.swap(problems.refusals);  // nothing refuses to read a file that is not there
  if (problems.empty()) {
    add_thrown(problems, [&] {
      std::string problem = structure_problem(entry, path);
      if (!problem.empty()) problems.damage.push_back(std::move(problem));
    });
    return problems;
  }
  if (progress) progress(entry.size_bytes);
  std::error_code error;
  const bool whole_file = fs::is_regular_file(path, error) && !error &&
                          fs::file_size(path, error) == static_cast<std::uintmax_t>(entry.size_bytes) && !error &&
                          std::ssize(entry.hashes) == block_count(entry.size_bytes);
  if (!whole_file) return problems;
  Problems blocks = damaged_blocks(file);
  return blocks.empty() ? problems : blocks;
}

// Reports entries of the directory that are neither the manifest nor listed in it.
void check_directory(const std::string& checkpoint, const Manifest& manifest, Problems& problems) {
  std::set<std::string, std::less<>> known{std::string(kManifestName)};
  for (const FileEntry& entry : manifest.files) known.insert(entry.name);
  std::set<std::string> unknown;
  std::error_code error;
  for (fs::directory_iterator at(checkpoint, error), end; !error && at != end; at.increment(error)) {
    std::string name = at->path().filename().string();
    if (!known.contains(name)) unknown.insert(std::move(name));
  }
  if (error) problems.refusals.push_back(fmt::format("cannot list '{}': {}", checkpoint, error.message()));
  for (const std::string& name : unknown) {
    problems.damage.push_back(fmt::format("'{}/{}' is not a file of this checkpoint", checkpoint, name));
  }
}

// Every state of every parameter that is there, is there whole.
void check_parameters(const Manifest& manifest, Problems& problems) {
  add_thrown(problems, [&] {
    const PieceIndex index(manifest);
    std::vector<Piece> all;
    for (const std::string& name : index.parameters()) {
      for (int state = 0; state < kStates; ++state) {
        const Piece* stored = index.find(static_cast<State>(state), name);
        if (stored == nullptr) continue;
        all.push_back({.state = stored->state,
                       .dtype = stored->dtype,
                       .slice = whole(name, stored->slice.global_rows, stored->slice.global_cols)});
      }
    }
    index.plan(all);
  });
}

}  // namespace

std::vector<std::string> verify(const std::string& checkpoint, int threads,
                                const std::function<void(std::int64_t)>& progress, bool* unreadable) {
  std::error_code error;
  if (!fs::is_directory(checkpoint, error)) {
    throw user_error("ckpt.path", fmt::format("{} is not a checkpoint: it is not a directory", checkpoint));
  }
  const Found found = look(checkpoint);
  if (unreadable != nullptr) *unreadable = found.unreadable;
  if (!found.manifest) return {found.problem};
  const Manifest& manifest = *found.manifest;
  Problems problems;
  check_directory(checkpoint, manifest, problems);
  check_parameters(manifest, problems);

  std::vector<std::int64_t> blocks;
  for (const FileEntry& entry : manifest.files)
    blocks.push_back(std::max<std::int64_t>(1, block_count(entry.size_bytes)));
  std::vector<Problems> of_files(manifest.files.size());
  const ProgressSum sum(progress);
  for_each_file(blocks, threads, [&](std::size_t i, int file_threads) {
    const FileEntry& entry = manifest.files[i];
    of_files[i] = problems_of_file(entry, checkpoint + "/" + entry.name, file_threads, sum.of_file());
  });
  for (Problems& of_file : of_files) problems.add(std::move(of_file));
  if (unreadable != nullptr) *unreadable = problems.damage.empty() && !problems.refusals.empty();
  std::vector<std::string> all = std::move(problems.damage);
  std::ranges::move(problems.refusals, std::back_inserter(all));
  return all;
}

}  // namespace ms::ckpt
