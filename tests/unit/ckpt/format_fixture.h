// Pieces and a manifest for tests of the checkpoint format.
#pragma once

#include <fcntl.h>

#include <filesystem>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/handle.h"
#include "ckpt/manifest.h"
#include "support/errors.h"
#include "support/files.h"

namespace ms::ckpt::format_fixture {

using test::slurp;
using test::spill;
using test::TempDir;
using test::thrown_by;

// File descriptors that this process has open.
inline std::ptrdiff_t open_files() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
}

// A file to write, made where it is not there.
inline UniqueFd created(const std::string& path) {
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
}

// True, and the test is to be skipped, in a build without HDF5.
inline bool without_hdf5() {
  const TempDir dir;
  const std::optional<Error> error = test::error_from([&] { make_skeleton(dir / "probe.h5", {}); });
  return error && error->kind() == "ckpt.hdf5" && error->blame() == Blame::user;
}

inline Piece piece(State state, tensor::DType dtype, Slice slice) {
  return {.state = state, .dtype = dtype, .slice = std::move(slice)};
}

// The pieces of one rank as a run makes them: bf16 weights whole, the rest shares of ZeRO that begin and end anywhere.
inline std::vector<Piece> some_pieces() {
  using tensor::DType;
  Slice rows = whole("layers.0.attn.q.weight", 64, 32);
  rows.row0 = 16, rows.rows = 16, rows.elements = {.begin = 0, .end = 16 * 32};
  Slice share = rows;
  share.elements = {.begin = 37, .end = 301};
  Slice rest = rows;
  rest.elements = {.begin = 301, .end = 500};
  const Slice norm = whole("final_norm", 1, 33);
  return {piece(State::weight, DType::bf16, rows),     piece(State::weight, DType::bf16, norm),
          piece(State::master, DType::f32, share),     piece(State::master, DType::f32, rest),
          piece(State::exp_avg, DType::f32, share),    piece(State::exp_avg, DType::f32, norm),
          piece(State::exp_avg_sq, DType::f32, share), piece(State::exp_avg_sq, DType::f32, norm)};
}

inline FileEntry entry_of(const std::string& name, const std::vector<Piece>& pieces) {
  FileEntry entry{.name = name, .size_bytes = 4096, .hashes = {}, .pieces = {}};
  for (const Piece& each : pieces) {
    entry.pieces.push_back({.piece = each, .offset = entry.size_bytes});
    entry.size_bytes += (each.size_bytes() + 63) / 64 * 64;
  }
  for (std::int64_t begin = 0; begin < entry.size_bytes; begin += std::int64_t{16} << 20) {
    entry.hashes.push_back(0x0123456789abcdefU + static_cast<std::uint64_t>(begin));
  }
  return entry;
}

inline Manifest some_manifest() {
  Manifest manifest;
  manifest.step = 1200;
  manifest.run = "00c0ffee00c0ffee";
  manifest.created = "2026-01-31T12:00:00Z";
  manifest.version = "0.1.0";
  manifest.config = "[mesh]\ndp = 2  # \"two\"\n";
  manifest.dp = 2, manifest.pp = 3, manifest.tp = 4, manifest.chunks = 5, manifest.zero = 1;
  manifest.dtype = "bf16";
  manifest.data = {.samples = 9600, .seed = UINT64_MAX, .source = "2 files"};
  manifest.files = {entry_of("rank-00000.h5", some_pieces()),
                    entry_of("rank-00001.h5", {piece(State::weight, tensor::DType::f32, whole("head", 3, 4))})};
  return manifest;
}

}  // namespace ms::ckpt::format_fixture
