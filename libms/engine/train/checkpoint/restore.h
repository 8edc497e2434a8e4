// The state of a run from a checkpoint that any layout, and either compute type, may have written.
#pragma once

#include <string>

#include "ckpt/load.h"
#include "comm/world.h"
#include "train/engine/engine.h"

namespace ms::train {

// Refuses a checkpoint of another model, naming what differs, in the keys of [model] that decide on what it computes or
// in the parameters: Error("ckpt.mismatch", user). Local. With `first_positions` a table of positions may have fewer
// rows than the stored one: they are its first ones, and a model that is not saved can do without the others.
void check_model(const nn::ModelConfig& model, const ckpt::Manifest& manifest, const std::string& path,
                 bool first_positions = false);

// Returns the threads that a rank reads with: its share of the node's.
int io_threads(const comm::World& world);

// Reads what this rank answers for, verified, into the engine's tensors; Engine::share_state() does the rest. Local.
// Where the compute types differ, masters become weights or weights masters; without an optimizer in the checkpoint the
// moments are zero. Errors of ckpt::load().
ckpt::LoadReport restore(Engine& engine, const ckpt::Manifest& manifest, const std::string& path, int threads);

}  // namespace ms::train
