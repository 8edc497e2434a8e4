// Beginning with a checkpoint of another run, checkpoint.load: all of its state, or its weights only. Nothing is
// written beside it. Tokenizer and generation files, which lie beside checkpoints of an imported model, go along.
#pragma once

#include "ckpt/directory.h"
#include "train/checkpoint/agreement.h"
#include "train/checkpoint/continuation.h"
#include "train/engine/engine.h"

namespace ms::train {

// Refuses what load_origin() would, before anything is written or started; not damage, which only reading finds. A run
// that will resume from checkpoint.dir needs no checkpoint.load any more. `fresh`: it will not. Local.
void check_load(const Continuation& run, bool fresh);

// Restores the checkpoint. checkpoint.load is set. Errors: those of ckpt::choose_complete() and Continuation::check();
// "ckpt.damaged" and "ckpt.read", storage. Collective.
Origin load_origin(const Continuation& run, comm::World& world, Engine& engine, Agreement& agreement);

}  // namespace ms::train
