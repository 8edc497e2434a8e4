#include "nn/chunk.h"

namespace ms::nn {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

mesh::ShardSpec vocab_shard(const Shape& shape) {
  return mesh::shard_rows_padded("", shape.model->vocab, shape.model->hidden, shape.tp, shape.tp_rank,
                                 shape.model->vocab_multiple);
}

// The head's matmuls do not round their operands: fp8 logits have too few bits to tell tokens apart.
TensorParallel of_head(const TensorParallel& on) {
  TensorParallel head = on;
  head.fp8 = false;
  return head;
}
TensorParallel of_dense(const TensorParallel& on) {
  TensorParallel dense = on;
  dense.shape.dense = true;
  return dense;
}

}  // namespace

std::vector<RoundedWeights> carve_rounded_weights(Arena& arena, const Shape& shape, const ChunkPart& part) {
  std::vector<RoundedWeights> layers;
  if (!shape.fp8) return layers;
  for (std::int64_t i = part.layer_begin; i < part.layer_end; ++i) {
    layers.push_back(carve_rounded_weights(arena, shape));
  }
  return layers;
}

ChunkSlot carve_slot(Arena& arena, const Shape& shape, std::span<const ChunkPart> parts, const LayerScratch& scratch) {
  ChunkSlot slot;
  std::int64_t layers = 0;
  for (const ChunkPart& part : parts) layers = std::max(layers, part.layer_end - part.layer_begin);
  for (std::int64_t i = 0; i < layers; ++i) {
    auto [acts, dense] =
        carve_kinds(arena, shape, kinds_of(*shape.model, parts, i), [&](Arena& memory, const Shape& of_kind) {
          return carve_acts(memory, of_kind, of_kind.dense ? scratch.dense.front() : scratch);
        });
    slot.layers.push_back(std::move(acts));
    slot.dense.push_back(std::move(dense));
  }
  slot.out = arena.take(shape.dtype, shape.shard_tokens(), shape.model->hidden);
  return slot;
}

HeadScratch carve_head(Arena& arena, const Shape& shape) {
  const std::int64_t tokens = shape.tokens(), rows = shape.shard_tokens();
  HeadScratch head;
  head.normed = arena.take(shape.dtype, rows, shape.model->hidden);
  if (shape.model->has_layer_norm()) head.mean = arena.take(DType::f32, 1, rows);
  head.rstd = arena.take(DType::f32, 1, rows);
  head.logits = arena.take(shape.dtype, tokens, vocab_shard(shape).rows);
  head.stats = arena.take(DType::f32, 3, tokens);
  head.all_stats = arena.take(DType::f32, 3 * shape.tp, tokens);
  head.loss = arena.take(DType::f32, 1, tokens);
  head.lse = arena.take(DType::f32, 1, tokens);
  return head;
}

Tensor carve_rotary(Arena& arena, const Shape& shape) {
  if (shape.model->is_gpt()) return {};
  return arena.take(DType::f32, shape.cp > 1 ? shape.queries() : shape.model->seq, shape.model->rotary());
}

std::vector<RotaryTable> rotary_tables(const Tensor& table, const Shape& shape) {
  const ModelConfig& model = *shape.model;
  using Kind = RotaryScaling::Kind;
  const Kind kind = model.rotary_scaling == "llama3"   ? Kind::llama3
                    : model.rotary_scaling == "linear" ? Kind::linear
                    : model.rotary_scaling == "yarn"   ? Kind::yarn
                                                       : Kind::none;
  const RotaryScaling scaling{kind,
                              model.rotary_factor,
                              model.rotary_low_freq,
                              model.rotary_high(),
                              model.rotary_original_seq,
                              model.rotary_magnitude()};
  std::vector<RotaryTable> tables;
  if (!table) return tables;
  const std::int64_t rows = table.rows / shape.pieces();
  for (int i = 0; i < shape.pieces(); ++i)
    tables.push_back(
        {table.slice_rows(i * rows, rows), static_cast<float>(model.rotary_base), scaling, shape.first_of_piece(i)});
  return tables;
}

namespace {

// Finds parameters by name in a chunk's spans.
class Binder {
 public:
  explicit Binder(const std::vector<SpanTensors>& spans) : spans_(spans) {}

  bool has(const std::string& name) const { return locate(name).second != nullptr; }
  // Returns one parameter, or several adjacent ones (named first and last), as one matrix or one row.
  Weight weight(const std::string& first, const std::string& last) const {
    const auto [span, begin] = locate(first);
    const auto [last_span, end] = locate(last);
    MS_ASSERT(begin != nullptr && end != nullptr && span == last_span, "parameters {} .. {} are not here", first, last);
    const std::int64_t count = end->offset + end->numel() - begin->offset;
    const std::int64_t cols = first.ends_with(".bias") ? count : begin->shard.cols;  // a matrix may have one row
    return {span->values.slice_cols(begin->offset, count).reshape(count / cols, cols),
            span->grads.slice_cols(begin->offset, count).reshape(count / cols, cols)};
  }
  Weight weight(const std::string& name) const { return weight(name, name); }
  Weight optional(const std::string& first, const std::string& last) const {
    return has(first) ? weight(first, last) : Weight{};
  }
  Weight optional(const std::string& name) const { return optional(name, name); }
  NormWeights norm(const std::string& name) const { return {weight(name + ".weight"), optional(name + ".bias")}; }

 private:
  std::pair<const SpanTensors*, const ParamSpec*> locate(const std::string& name) const {
    for (const SpanTensors& span : spans_) {
      if (const ParamSpec* param = span.spec.find(name)) return {&span, param};
    }
    return {nullptr, nullptr};
  }
  const std::vector<SpanTensors>& spans_;
};

}  // namespace

Chunk::Chunk(const Shape& shape, const ChunkPart& part, const std::vector<SpanTensors>& spans, const Tensor& rotary,
             const std::vector<RoundedWeights>& rounded, const std::vector<Tensor>& caches,
             const std::vector<RouterBuffers>& routers)
    : shape_(shape), part_(part), vocab_(vocab_shard(shape)), rotary_(rotary), caches_(caches) {
  const Binder bind(spans);
  for (std::int64_t i = part.layer_begin; i < part.layer_end; ++i) {
    const std::string p = "layers." + std::to_string(i) + ".";
    LayerWeights layer;
    layer.norm1 = bind.norm(p + "norm1");
    if (!shape.model->shares_norm()) layer.norm2 = bind.norm(p + "norm2");
    if (shape.model->qk_norm) layer.q_norm = bind.norm(p + "attn.q_norm"), layer.k_norm = bind.norm(p + "attn.k_norm");
    layer.qkv = bind.weight(p + "attn.q.weight", p + "attn.v.weight");
    layer.qkv_bias = bind.optional(p + "attn.q.bias", p + "attn.v.bias");
    layer.out = bind.weight(p + "attn.out.weight");
    layer.out_bias = bind.optional(p + "attn.out.bias");
    const std::string up = p + (shape.model->gated() ? "mlp.gate" : "mlp.up");
    if (shape.model->has_experts(i)) {
      const std::int64_t held = shape.own_experts(), begin = shape.ep_rank * held;
      const std::string first = expert_prefix(p + "mlp.", begin), last = expert_prefix(p + "mlp.", begin + held - 1);
      layer.router = bind.weight(p + "mlp.router.weight");
      layer.shared_up = bind.optional(p + "mlp.shared.gate.weight", p + "mlp.shared.up.weight");
      layer.shared_down = bind.optional(p + "mlp.shared.down.weight");
      layer.shared_router = bind.optional(p + "mlp.shared.router.weight");
      if (!routers.empty()) layer.buffers = routers[layers_.size()];
      layer.up = bind.weight(first + "gate.weight", last + "up.weight");
      layer.down = bind.weight(first + "down.weight", last + "down.weight");
    } else {
      layer.up = bind.weight(up + ".weight", p + "mlp.up.weight");
      layer.down = bind.weight(p + "mlp.down.weight");
    }
    layer.up_bias = bind.optional(up + ".bias", p + "mlp.up.bias");
    layer.down_bias = bind.optional(p + "mlp.down.bias");
    if (shape.model->shares_norm()) {
      layer.in = bind.weight(p + "attn.q.weight", p + "mlp.up.weight");
      layer.in_bias = bind.optional(p + "attn.q.bias", p + "mlp.up.bias");
    }
    if (!rounded.empty()) {
      const RoundedWeights& of = rounded[layers_.size()];
      layer.qkv.rounded = of.qkv, layer.out.rounded = of.out, layer.up.rounded = of.up;
      layer.down.rounded = of.down, layer.in.rounded = of.in;
    }
    layers_.push_back(layer);
  }
  if (part.first) {
    embedding_ = bind.weight("embed.tokens.weight");
    positions_ = bind.optional("embed.positions.weight");
    patches_ = bind.optional("embed.patches.weight");
  }
  if (part.last) {
    final_norm_ = bind.norm("final_norm");
    head_ = bind.weight(shape.model->tied_embeddings ? "embed.tokens.weight" : "head.weight");
  }
}

Tensor Chunk::own_positions(const Microbatch& input, std::int64_t offset) const {
  return input.positions.slice_cols(offset, shape_.shard_tokens());
}

Tensor Chunk::own_patches(const Microbatch& input) const {
  const bool scattered = shape_.sequence_parallel && shape_.tp > 1;
  return input.patches.slice_rows(scattered ? shape_.tp_rank * shape_.shard_tokens() : 0, shape_.shard_tokens());
}

void Chunk::embed(const TensorParallel& on, const ChunkSlot& slot, const Microbatch& input,
                  LayerScratch& scratch) const {
  const Tensor& x = slot.in();
  const bool scatter = shape_.sequence_parallel && shape_.tp > 1;
  const Tensor& sum = scatter ? scratch.partial : x;
  on.compute.submit(EmbeddingFwd{sum, embedding_.value, input.tokens, vocab_.row0});
  on.arrived(on.reduce(sum, x));
  if (positions_.value) {
    const std::int64_t offset = shape_.first + (scatter ? shape_.tp_rank * shape_.shard_tokens() : 0);
    if (input.positions) {
      const Tensor rows = scratch.partial.slice_rows(0, x.rows);
      on.compute.submit(EmbeddingFwd{rows, positions_.value, own_positions(input, offset)});
      on.compute.submit(Add{x, x, rows, {}});
    } else {
      on.compute.submit(PositionFwd{x, positions_.value, offset});
    }
  }
  if (input.patches) {
    const Tensor rows = scratch.partial.slice_rows(0, x.rows);
    on.compute.submit(Matmul{.c = rows, .a = own_patches(input), .b = patches_.value, .transpose_b = true});
    on.compute.submit(Add{x, x, rows, {}});
  }
}

Layer Chunk::layer(const TensorParallel& on, const TensorParallel& dense, const ChunkSlot& slot,
                   const LayerScratch& scratch, std::size_t i) const {
  if (!is_dense(i)) return {on, layers_[i], slot.layers[i], positions_of(slot, i), scratch};
  return {dense, layers_[i], slot.dense[i], positions_of(slot, i), scratch.dense.front()};
}

void Chunk::round_weights(Stream& stream, std::int64_t place) const {
  if (place < std::ssize(layers_)) nn::round_weights(stream, layers_[static_cast<std::size_t>(place)]);
}

void Chunk::forward(const TensorParallel& on, ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
                    const Pass& before) const {
  slot.starts = input.starts;
  const TensorParallel dense = of_dense(on);
  Residual sum;  // the last layer's output, unsummed
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (before) before(static_cast<std::int64_t>(i));
    if (i == 0 && part_.first) embed(on, slot, input, scratch);
    const Layer next = layer(on, dense, slot, scratch, i);
    if (i > 0 && is_dense(i) != is_dense(i - 1)) {  // its scratch lies where the terms of the sum do
      on.compute.submit(Add{next.acts.x, sum.a, sum.b, sum.bias});
      sum = {};
    }
    sum = layer_forward(next, sum);
  }
  on.compute.submit(Add{slot.out, sum.a, sum.b, sum.bias});
}

void Chunk::head_logits(const TensorParallel& layers_on, const ChunkSlot& slot, LayerScratch& scratch,
                        HeadScratch& head) const {
  const TensorParallel on = of_head(layers_on);
  const Tensor out = slot.out.slice_rows(slot.out.rows - head.normed.rows, head.normed.rows);
  norm_forward(on.compute, *shape_.model, final_norm_, out, head.normed, head.mean, head.rstd);
  on.gather_matmul({.c = head.logits, .b = head_.value, .transpose_b = true}, head.normed, scratch.gathered);
}

void Chunk::head_loss(const TensorParallel& on, const ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
                      HeadScratch& head, const Tensor& loss_sum, double loss_scale) const {
  head_logits(on, slot, scratch, head);
  on.compute.submit(LossStats{head.stats, head.logits, input.targets, vocab_.row0, vocab_.logical_rows()});
  on.gather_small(head.stats, head.all_stats);
  on.compute.submit(LossCombine{head.loss, head.lse, head.all_stats, input.targets});
  on.compute.submit(SumInto{loss_sum, head.loss, loss_scale * input.target_weight});
}

void Chunk::run_backward(const TensorParallel& on, ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
                         HeadScratch& head, const Tensor& dx, const Tensor& loss_sum, double loss_scale,
                         WeightGradients when, const Pass& after) const {
  const auto passed = [&](std::size_t place) {
    if (after) after(static_cast<std::int64_t>(place));
  };
  // Where the norm whose backward makes the gradient of a layer's output leaves its amax.
  const auto dout_amax = [&](std::size_t layer) { return on.fused_amax_of_gathered(slot.layers[layer].amax.dout); };
  if (part_.last) {
    head_loss(on, slot, input, scratch, head, loss_sum, loss_scale);
    on.compute.submit(LossBackward{head.logits, head.lse, input.targets, vocab_.row0, vocab_.logical_rows(),
                                   static_cast<float>(loss_scale * input.target_weight),
                                   static_cast<float>(shape_.z_loss)});
    // The all-gathered norm output is still in scratch.gathered.
    const Tensor normed = shape_.sequence_parallel && shape_.tp > 1 ? scratch.gathered : head.normed;
    const Arriving dnormed =
        of_head(on).matmul_reduce({.c = scratch.partial, .a = head.logits, .b = head_.value}, scratch.reduced);
    on.compute.submit(
        Matmul{.c = head_.grad, .a = head.logits, .b = normed, .transpose_a = true, .accumulate = !on.sets_gradients});
    norm_backward(on.compute, *shape_.model, final_norm_, dx, on.arrived(dnormed), slot.out, head.mean, head.rstd,
                  false, dout_amax(layers_.size() - 1));
  }
  passed(layers_.size());
  const TensorParallel dense = of_dense(on);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const bool is_made_here = i + 1 < layers_.size() || part_.last;  // dx; otherwise it was received
    layer_backward(layer(on, dense, slot, scratch, i), dx, when,
                   {is_made_here && dout_amax(i), i > 0 ? dout_amax(i - 1) : Tensor{}}, loss_scale);
    if (i > 0) passed(i);
  }
  if (part_.first) {
    const bool scattered = shape_.sequence_parallel && shape_.tp > 1;
    const std::int64_t offset = scattered ? shape_.tp_rank * shape_.shard_tokens() : 0;
    if (positions_.grad && input.positions) {
      on.compute.submit(EmbeddingBwd{positions_.grad, dx, own_positions(input, offset)});
    } else if (positions_.grad) {
      on.compute.submit(PositionBwd{positions_.grad, dx, offset});
    }
    if (input.patches) {
      on.compute.submit(
          Matmul{.c = patches_.grad, .a = dx, .b = own_patches(input), .transpose_a = true, .accumulate = true});
    }
    on.compute.submit(
        EmbeddingBwd{embedding_.grad, on.arrived(on.gather(dx, scratch.dout)), input.tokens, vocab_.row0});
  }
  passed(0);
}

void Chunk::backward(const TensorParallel& on, ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
                     HeadScratch& head, const Tensor& dx, const Tensor& loss_sum, double loss_scale,
                     const Pass& after) const {
  run_backward(on, slot, input, scratch, head, dx, loss_sum, loss_scale, WeightGradients::now, after);
}

void Chunk::backward_input(const TensorParallel& on, ChunkSlot& slot, const Microbatch& input, LayerScratch& scratch,
                           HeadScratch& head, const Tensor& dx, const Tensor& loss_sum, double loss_scale,
                           const Pass& after) const {
  run_backward(on, slot, input, scratch, head, dx, loss_sum, loss_scale, WeightGradients::later, after);
}

void Chunk::backward_weight(const TensorParallel& on, ChunkSlot& slot, LayerScratch& scratch, const Pass& after) const {
  if (after) after(std::ssize(layers_));
  const TensorParallel dense = of_dense(on);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    layer_weight_gradients(layer(on, dense, slot, scratch, i));
    if (after) after(static_cast<std::int64_t>(i));
  }
}

}  // namespace ms::nn
