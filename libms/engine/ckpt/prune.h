// Removes old checkpoints of a directory by a policy: ms-ckpt prune. A run that is at work prunes by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ckpt/directory.h"

namespace ms::ckpt {

struct PruneOptions {
  PrunePolicy policy;
  bool dry_run = false;  // only say what would go
  bool verify = true;    // read the newest one first: a damaged one must not be all that is left
  int threads = 2;
  std::function<void(std::int64_t)> progress = {};  // bytes read so far
};

struct Pruned {
  std::string dir;
  bool dry_run = false;
  std::vector<Found> gone = {};
  std::int64_t kept = 0;  // complete ones that stay
};

// Takes the directory's lock, and with that is refused while a run works there; a dry run looks without it.
// Error("ckpt.damaged", storage): the newest one is not sound, nothing was removed.
// "ckpt.unreadable": the same, where it could not be read.
Pruned prune(const std::string& dir, const PruneOptions& options);

}  // namespace ms::ckpt
