// Going on: the newest checkpoint that can be loaded, from the memory of the nodes or from storage, into any layout.
#pragma once

#include <memory>
#include <string>

#include "ckpt/memory_tier.h"
#include "train/checkpoint/agreement.h"
#include "train/checkpoint/continuation.h"
#include "train/engine/engine.h"

namespace ms::train {

struct Resumed {
  Origin origin;
  std::string run;                           // the id of the resumed run, or of a new one
  std::unique_ptr<ckpt::MemoryTier> memory;  // nullptr: copies in memory are not wanted
};

// Collective over the world; rank 0 holds the directory's lock.
// Each checkpoint that cannot be loaded is named, with why, and passed over. Errors: "ckpt.none", storage: there are
// checkpoints, and none can be loaded; "ckpt.read", storage: one cannot be read now; "ckpt.node", node: a rank finds
// damage that rank 0 does not; those of Continuation::check() for the newest.
Resumed resume(const Plan& plan, const Continuation& continuation, comm::World& world, Engine& engine,
               tensor::Device& host, Agreement& agreement);

}  // namespace ms::train
