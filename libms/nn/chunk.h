// A model chunk: the layers [begin, end) on one rank, with the embedding in front of the first and the head behind the
// last one. It binds the parameters in its spans to layers and issues forward and backward of one microbatch.
//
// The head runs in the backward: logits are computed when their gradient is due, so that there is one buffer for them,
// whatever the schedule keeps in flight. Evaluation calls head_loss() after the forward.
#pragma once

#include <functional>
#include <vector>

#include "nn/layer.h"

namespace ms::nn {

// A span's memory on this rank: parameters in the compute type, gradients in f32.
struct SpanTensors {
  SpanSpec spec;
  Tensor values, grads;  // [1,numel]
};

// What a microbatch keeps in a chunk between forward and backward.
struct ChunkSlot {
  std::vector<LayerActs> layers;
  Tensor out;                                            // [Ts,H]: the chunk's output
  const Tensor& in() const { return layers.front().x; }  // the chunk's input: received here
};

// Temporary tensors of the head, one set a rank that holds it.
struct HeadScratch {
  Tensor normed, mean, rstd;  // [Ts,H], [1,Ts]
  Tensor logits;              // [T, padded vocabulary / tp]
  Tensor stats, all_stats;    // [3,T], [3 tp,T]
  Tensor loss, lse;           // [1,T]
};

// Real or measuring arenas.
// Of each layer; none unless shape.fp8.
std::vector<WeightMagnitudes> carve_weight_magnitudes(Arena& arena, const Shape& shape, const ChunkPart& part);
ChunkSlot carve_slot(Arena& arena, const Shape& shape, const ChunkPart& part, const LayerScratch& scratch);
HeadScratch carve_head(Arena& arena, const Shape& shape);
Tensor carve_rotary(Arena& arena, const Shape& shape);  // absent where the model has none

// One microbatch's input: token ids and the ids that follow them, i32 [1,T]; each needed on one end of the model only.
struct Microbatch {
  Tensor tokens, targets;
};

class Chunk {
 public:
  Chunk(const Shape& shape, const ChunkPart& part, const std::vector<SpanTensors>& spans, const Tensor& rotary,
        const std::vector<WeightMagnitudes>& magnitudes = {});

  const ChunkPart& part() const { return part_; }

  // Called with the places of the chunk as they are passed: 0, ..., layers - 1 the layers, `layers` the head; the
  // embedding is at 0. A forward calls it before it issues what reads the parameters at a place (the head's are read by
  // others); a backward, from the last to the first, when all is issued that adds to the gradients there.
  using Pass = std::function<void(std::int64_t place)>;

  // Where products round their factors: after the weights have changed, before the next forward reads those at a place.
  void find_weight_magnitudes(tensor::Stream& stream, std::int64_t place) const;
  // slot.in() (or the tokens, in the first chunk) -> slot.out.
  void forward(const TensorParallel& on, ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
               const Pass& before = {}) const;
  // dx: the gradient of slot.out on entry (of no meaning in the last chunk), of slot.in() on return.
  // In the last chunk the head runs first: loss_sum f64 [1,1] += loss_scale * sum of token losses, and the gradient is
  // that of loss_scale * sum of token losses.
  void backward(const TensorParallel& on, ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
                HeadScratch& head, const Tensor& dx, const Tensor& loss_sum, double loss_scale,
                const Pass& after = {}) const;
  // The same in two halves, for schedules that let the second wait; the bits are those of backward(). backward_input is
  // what brings dx, and leaves the gradients of the layers' weights to backward_weight, which reads what the slot
  // keeps. Of a chunk's microbatches, the second halves run in the order of the first. Only where shape.split_backward.
  //
  // The head's weight has its gradient in the first half: there is one buffer for logits. So has the embedding: nobody
  // waits for the first chunk's dx, and where the two are one matrix its sum has the order that it has unsplit.
  void backward_input(const TensorParallel& on, ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
                      HeadScratch& head, const Tensor& dx, const Tensor& loss_sum, double loss_scale) const;
  void backward_weight(const TensorParallel& on, ChunkSlot& slot, LayerScratch& scratch, const Pass& after = {}) const;
  // The last chunk's logits and loss, no gradient.
  void head_loss(const TensorParallel& on, const ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
                 HeadScratch& head, const Tensor& loss_sum, double loss_scale) const;
  // The last chunk's logits only, into head.logits.
  void head_logits(const TensorParallel& on, const ChunkSlot& slot, LayerScratch& scratch, HeadScratch& head) const;

 private:
  void embed(const TensorParallel& on, const ChunkSlot& slot, const Tensor& tokens, LayerScratch& scratch) const;
  void run_backward(const TensorParallel& on, ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
                    HeadScratch& head, const Tensor& dx, const Tensor& loss_sum, double loss_scale,
                    WeightGradients when, const Pass& after) const;

  Shape shape_;
  ChunkPart part_;
  mesh::ShardSpec vocab_;  // of the embedding and the head
  Tensor rotary_;
  std::vector<LayerWeights> layers_;
  Weight embedding_, positions_, head_;
  NormWeights final_norm_;
};

}  // namespace ms::nn
