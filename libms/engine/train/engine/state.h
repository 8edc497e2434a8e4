// The state of a run that a checkpoint holds: which rank has which pieces of it, and where they lie in its tensors.
//
// In inference that is the weights. Whatever the ZeRO stage, a dp rank saves and loads 1/dp of every span; of its
// shard, if several ranks hold it, an equal part. Tensors that tp replicates belong to tp rank 0, and a parameter that
// two stages share belongs to the first stage. So every element of the model is in exactly one rank's list, and a load
// reads each once; Engine::share_state() sends it to ranks that hold copies.
#pragma once

#include <vector>

#include "ckpt/saver.h"
#include "train/engine/rank_tensors.h"

namespace ms::train {

// Pure, for plans and for resharding without a run.
std::vector<ckpt::Piece> saved_pieces(const Plan& plan, const mesh::Coord& at);
// The same pieces in the same order, with their tensors.
std::vector<ckpt::Held> held_state(const Plan& plan, const mesh::Coord& at, const RankTensors& tensors);

// Host memory that saves copy these into. The plan saves checkpoints.
std::int64_t copy_bytes(const Plan& plan, const mesh::Coord& at);

// The gradients, after their reduction, of the elements that this rank answers for: each element of the model is in
// exactly one rank's list.
struct HeldGradient {
  std::string parameter;
  tensor::Tensor gradient;  // [1,n], of optim::grads_dtype()
};
std::vector<HeldGradient> held_gradients(const Plan& plan, const mesh::Coord& at, const RankTensors& tensors);

// All logical parameters of the model, whole.
std::vector<ckpt::Slice> model_parameters(const nn::ModelConfig& model);

// The part of a span that a dp rank answers for.
mesh::Range share_of(const nn::SpanSpec& span, const Plan& plan, const mesh::Coord& at);

}  // namespace ms::train
