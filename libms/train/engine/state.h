// The state of a run that a checkpoint holds: which rank has which pieces of it, and where they lie in its tensors.
//
// Whatever the ZeRO stage, a dp rank answers for its share of every span, 1/dp of it: it saves that and reads that.
// What every tp rank holds whole is tp rank 0's, and a parameter that two stages share is the first one's. So every
// element of the model is in exactly one rank's list, and a load reads each once; Engine::share_state() brings it to
// those that hold copies.
#pragma once

#include <vector>

#include "ckpt/saver.h"
#include "train/engine/rank_tensors.h"

namespace ms::train {

// Pure, for plans and for resharding without a run.
std::vector<ckpt::Piece> saved_pieces(const Plan& plan, const mesh::Coord& at);
// The same pieces in the same order, with their tensors.
std::vector<ckpt::Held> held_state(const Plan& plan, const mesh::Coord& at, const RankTensors& tensors);

// All logical parameters of the model, whole.
std::vector<ckpt::Slice> model_parameters(const nn::ModelConfig& model);

// The part of a span that a dp rank answers for.
mesh::Range share_of(std::int64_t numel, const Plan& plan, const mesh::Coord& at);

}  // namespace ms::train
