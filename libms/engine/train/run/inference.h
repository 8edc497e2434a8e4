// A checkpoint's model on the ranks of any layout, without gradients and optimizer: for commands that evaluate it or
// generate with it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ckpt/directory.h"
#include "train/engine/engine.h"
#include "train/run/data_feed.h"

namespace ms::train {

// A model, and its use, which is called on every rank and is collective over the world.
struct Inference {
  ckpt::Found checkpoint;  // complete
  // `feed` has not begun; nullptr without `data`.
  std::function<void(Engine& engine, const Plan& plan, const comm::World& world, DataFeed* feed)> use;
  data::OpenBatches data = {};  // for the loaders of nodes
  bool generates = false;       // with Engine::next_token(), and does nothing else
};

// The configuration that a checkpoint was saved with, its type, `assignments` on top, and of a run only what a forward
// needs; `adjust` comes last. Checked as load() does it, and against the checkpoint: Error("ckpt.mismatch", user).
Loaded load_for_inference(const ckpt::Found& checkpoint, const std::vector<std::string>& assignments,
                          const std::function<void(Settings&)>& adjust);

// Opens the data, loads the model into an engine, calls `use`, and waits until nothing is in flight. Collective over
// the world. `loader` and `failed` as in TrainerOptions.
void run_inference(const Plan& plan, comm::World& world, tensor::Device& device, const Inference& inference,
                   data::LoaderProcess* loader, const std::function<void(const Error&)>& failed);

}  // namespace ms::train
