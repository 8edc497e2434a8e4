// Rewrites a checkpoint for another layout without a run: ms-ckpt reshard. A run loads any layout by itself; this is
// for users who want the files of one.
#pragma once

#include <string>
#include <vector>

#include "ckpt/offline.h"
#include "train/config.h"

namespace ms::train {

struct Resharded {
  ckpt::Manifest manifest;  // without files
  std::vector<ckpt::OfflineFile> files;
};

// Returns the files that a run of the `target` settings would save, filled from `checkpoint`. Its manifest `from`
// outlives the result. The caller fills the files in order, and each piece once: they share a reader. `target` is the
// configuration of the checkpoint with another [mesh] or optim.zero, of the type that the checkpoint holds.
// Everything is matched before this returns: Error("ckpt.mismatch", user), "ckpt.incomplete", storage.
Resharded reshard(const std::string& checkpoint, const ckpt::Manifest& from, const Loaded& target, int threads);

}  // namespace ms::train
