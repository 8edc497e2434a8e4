// A model chunk: the layers [begin, end) on one rank, with the embedding before the first layer of the model and the
// head after the last. It binds the parameters in its spans to layers and issues the forward and backward of one
// microbatch.
//
// The head runs in the backward: logits are computed when their gradient is due, so that one buffer suffices, whatever
// the schedule keeps in flight. Evaluation calls head_loss() after the forward.
#pragma once

#include <functional>
#include <vector>

#include "nn/layer.h"

namespace ms::nn {

// A span's memory on this rank: parameters in the compute type, gradients in f32 or bf16.
struct SpanTensors {
  SpanSpec spec;
  Tensor values, grads;  // [1,numel]
};

// The activations that a microbatch keeps in a chunk between forward and backward. Chunks of the rank share it: one of
// fewer layers than the slot has uses the first of them.
struct ChunkSlot {
  std::vector<LayerActs> layers, dense;  // dense: where it is such a layer (LayerScratch::dense), in the same memory
  Tensor out;                            // [Ts,H]: the chunk's output
  Tensor starts;                         // of the microbatch, since its forward
  const Tensor& in() const { return layers.front().x; }  // the chunk's input: received here
};

// Temporary tensors of the head, one set per rank that holds it.
struct HeadScratch {
  Tensor normed, mean, rstd;  // [Ts,H], [1,Ts]
  Tensor logits;              // [T, padded vocabulary / tp]
  Tensor stats, all_stats;    // [3,T], [3 tp,T]
  Tensor loss, lse;           // [1,T]
};

// All carve from arenas, real or measuring. carve_rounded_weights() returns one element a layer, or none unless
// shape.fp8. `parts`: the chunks that use the slot.
std::vector<RoundedWeights> carve_rounded_weights(Arena& arena, const Shape& shape, const ChunkPart& part);
ChunkSlot carve_slot(Arena& arena, const Shape& shape, std::span<const ChunkPart> parts, const LayerScratch& scratch);
HeadScratch carve_head(Arena& arena, const Shape& shape);
Tensor carve_rotary(Arena& arena, const Shape& shape);  // absent if the model has none
// The ops that fill it, for the pieces of a sequence that the rank has.
std::vector<tensor::RotaryTable> rotary_tables(const Tensor& table, const Shape& shape);

// One microbatch's input: token ids and the ids that follow them, i32 [1,T]. The first stage needs the tokens, the last
// stage the targets. With document masks every stage needs `starts` (AttentionFwd::starts), of whole sequences. The
// first stage needs `positions` with document masks, and with mesh.cp. The loss ignores negative targets. `patches`
// [T,3 P P], 0 for a token that is no patch, are those of the first stage of a model with images, which may be absent.
struct Microbatch {
  Tensor tokens, targets;
  Tensor starts = {}, positions = {}, patches = {};
  double target_weight = 1;  // of each target in the loss: tokens of the step over targets that are not ignored
};

class Chunk {
 public:
  // `caches`, `routers`: Positions::cache and LayerWeights::buffers of its layers, or none.
  Chunk(const Shape& shape, const ChunkPart& part, const std::vector<SpanTensors>& spans, const Tensor& rotary,
        const std::vector<RoundedWeights>& rounded = {}, const std::vector<Tensor>& caches = {},
        const std::vector<RouterBuffers>& routers = {});

  const ChunkPart& part() const { return part_; }

  // Called with the places of the chunk as they are passed: 0, ..., layers - 1 are the layers, `layers` is the head,
  // and the embedding is at 0. A forward calls it before it issues ops that read the parameters at a place (not for the
  // head, which runs later). A backward calls it from the last place to the first, after it has issued everything that
  // adds to the gradients there.
  using Pass = std::function<void(std::int64_t place)>;

  // Rounds the weights at a place, if matmuls round their operands: after the weights have changed and before the next
  // forward reads them.
  void round_weights(tensor::Stream& stream, std::int64_t place) const;
  // slot.in() (or the tokens, in the first chunk) -> slot.out.
  void forward(const TensorParallel& on, ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
               const Pass& before = {}) const;
  // dx is the gradient of slot.out on entry (ignored in the last chunk) and of slot.in() on return. In the last chunk
  // the head runs first: loss_sum f64 [1,1] += loss_scale * input.target_weight * sum of token losses, and the gradient
  // is that of the same, shape.z_loss included. `loss_scale` alone is that of a router's losses, to which each token
  // adds.
  void backward(const TensorParallel& on, ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
                HeadScratch& head, const Tensor& dx, const Tensor& loss_sum, double loss_scale,
                const Pass& after = {}) const;
  // The same in two halves, for schedules that delay the second, with the bits of backward(). backward_input() computes
  // dx and leaves the gradients of the layers' weights to backward_weight(), which reads what the slot keeps. The
  // second halves of a chunk's microbatches run in the order of the first halves. Only if shape.split_backward.
  //
  // The first half computes the gradient of the head's weight, as there is one buffer for logits. It computes that of
  // the embedding too: no stage needs the first chunk's dx, and with tied embeddings the sum keeps its unsplit order.
  void backward_input(const TensorParallel& on, ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
                      HeadScratch& head, const Tensor& dx, const Tensor& loss_sum, double loss_scale,
                      const Pass& after = {}) const;
  void backward_weight(const TensorParallel& on, ChunkSlot& slot, LayerScratch& scratch, const Pass& after = {}) const;
  // Computes the last chunk's logits and loss, without gradients.
  void head_loss(const TensorParallel& on, const ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
                 HeadScratch& head, const Tensor& loss_sum, double loss_scale) const;
  // Computes the last chunk's logits only, into head.logits: of as many of the last tokens as that has rows.
  void head_logits(const TensorParallel& on, const ChunkSlot& slot, LayerScratch& scratch, HeadScratch& head) const;

 private:
  Positions positions_of(const ChunkSlot& slot, std::size_t layer) const {
    return {rotary_, slot.starts, caches_.empty() ? Tensor{} : caches_[layer]};
  }
  bool is_dense(std::size_t i) const { return shape_.model->experts > 0 && !layers_[i].router.value; }
  // Returns layer i of a microbatch, on `on`, or on `dense`, that of dense layers among those with experts.
  Layer layer(const TensorParallel& on, const TensorParallel& dense, const ChunkSlot& slot, const LayerScratch& scratch,
              std::size_t i) const;
  void embed(const TensorParallel& on, const ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch) const;
  // This rank's rows of positions, from `offset`.
  Tensor own_positions(const Microbatch& input, std::int64_t offset) const;
  Tensor own_patches(const Microbatch& input) const;  // of the same rows
  void run_backward(const TensorParallel& on, ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
                    HeadScratch& head, const Tensor& dx, const Tensor& loss_sum, double loss_scale,
                    WeightGradients when, const Pass& after) const;

  Shape shape_;
  ChunkPart part_;
  mesh::ShardSpec vocab_;  // of the embedding and the head
  Tensor rotary_;
  std::vector<Tensor> caches_;
  std::vector<LayerWeights> layers_;
  Weight embedding_, positions_, patches_, head_;
  NormWeights final_norm_;
};

}  // namespace ms::nn
