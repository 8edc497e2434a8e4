// Reading a checkpoint into memory: the reshard plan carried out, every block that is touched read once and verified
// before a byte of it is used. Local to the caller; ranks that want the same bytes agree among themselves who reads
// them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ckpt/blocks.h"
#include "ckpt/reshard.h"

namespace ms::ckpt {

struct Want {
  Piece piece;
  std::byte* to = nullptr;  // piece.size_bytes() of host memory
};

struct LoadOptions {
  int threads = 2;                                  // blocks in flight
  std::function<void(std::int64_t)> progress = {};  // bytes read so far, by one thread at a time
};

struct LoadReport {
  std::int64_t bytes_read = 0;  // from the file system: whole blocks
  std::int64_t bytes_wanted = 0;
  double seconds = 0;
};

// Errors of the plan ("ckpt.mismatch", "ckpt.incomplete") before anything is read, and of the blocks ("ckpt.damaged",
// "ckpt.read"): then the memory holds no telling what.
LoadReport load(const std::string& checkpoint, const Manifest& manifest, const std::vector<Want>& wants,
                const LoadOptions& options);
// The same for who loads several times: the index is made once, and the manifest it is of outlives it.
LoadReport load(const std::string& checkpoint, const PieceIndex& index, const std::vector<Want>& wants,
                const LoadOptions& options);

// Every byte of every file against its hash, the HDF5 structure against the manifest, that every parameter is there
// whole, and that there is no file that the manifest does not name. All problems, not only the first, and proofs of
// damage before what the system refused to read; empty: sound. `progress` counts bytes. `unreadable`, where given, says
// whether there are refusals and no proof of damage. Error("ckpt.path", user): no such directory.
std::vector<std::string> verify(const std::string& checkpoint, int threads,
                                const std::function<void(std::int64_t)>& progress = {}, bool* unreadable = nullptr);

}  // namespace ms::ckpt
