// Going on: the newest checkpoint that can be loaded, from the memory of the nodes or from storage, into any layout.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "ckpt/memory_tier.h"
#include "train/checkpoint/agreement.h"
#include "train/engine/engine.h"

namespace ms::train {

// Where a run begins.
struct Origin {
  std::int64_t step = 0;                   // steps done
  std::int64_t samples = 0;                // of the data's order, trained on
  std::string path;                        // the checkpoint; empty: from the beginning
  bool restored = false;                   // the engine has its state
  std::int64_t bytes = 0, bytes_read = 0;  // of the checkpoint; from storage, by all ranks
  double seconds = 0;                      // that loading took
  std::string matmul_choices;              // of the checkpoint
};

struct Resumed {
  Origin origin;
  std::string run;                           // the id of the resumed run, or of a new one
  std::unique_ptr<ckpt::MemoryTier> memory;  // nullptr: copies in memory are not wanted
};

// Collective over the world; rank 0 holds the directory's lock. `resolved`: the configuration of this run.
// Each checkpoint that cannot be loaded is named, with why, and passed over. Errors: "ckpt.none", storage: there are
// checkpoints, and none can be loaded; "ckpt.read", storage: one cannot be read now; "ckpt.node", node: a rank finds
// damage that rank 0 does not; "ckpt.mismatch", user: the newest is of another model; "ckpt.data", user: it was trained
// on other data (checkpoint.data = "restart" allows that).
Resumed resume(const Plan& plan, const std::string& resolved, const std::string& data_fingerprint, comm::World& world,
               Engine& engine, tensor::Device& host, Agreement& agreement);

}  // namespace ms::train
