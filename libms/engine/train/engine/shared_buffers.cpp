#include "train/engine/shared_buffers.h"

#include <algorithm>
#include <array>

namespace ms::train {

using tensor::Arena;
using tensor::Tensor;

namespace {

enum Kind : std::size_t { layers, experts, vocabulary, kKinds };
Kind kind_of(const nn::SpanSpec& spec) {
  if (spec.experts) return experts;
  return spec.end > spec.place ? layers : vocabulary;
}

// Buffers of a kind, which its spans take in turns.
struct Turns {
  std::int64_t elements = 0;  // of the largest span
  std::int64_t spans = 0, buffers = 0;
  std::size_t first = 0;  // the number of the first one among all kinds
  std::vector<Tensor> memory;
};
using Kinds = std::array<Turns, kKinds>;

void carve(Arena& arena, tensor::DType dtype, Kinds& kinds) {
  std::size_t first = 0;
  for (Turns& kind : kinds) {
    kind.first = first;
    kind.buffers = std::min(kind.buffers, kind.spans);
    for (std::int64_t i = 0; i < kind.buffers; ++i) kind.memory.push_back(arena.take(dtype, 1, kind.elements));
    first += kind.memory.size();
    kind.spans = 0;
  }
}

// Gives the next span of its kind a buffer.
void take_turn(Turns& kind, std::int64_t elements, Tensor& memory, std::size_t& at) {
  const auto turn = static_cast<std::size_t>(kind.spans++ % kind.buffers);
  memory = kind.memory[turn].slice_cols(0, elements), at = kind.first + turn;
}

void count(Turns& kind, std::int64_t elements) {
  kind.elements = std::max(kind.elements, elements);
  ++kind.spans;
}

// Under zero 2.
std::vector<std::vector<optim::SharedBuffers>> carve_gradients(Arena& arena, const Plan& plan,
                                                               const std::vector<std::vector<nn::SpanSpec>>& chunks) {
  std::vector<std::vector<optim::SharedBuffers>> shared(chunks.size());
  std::int64_t largest = 0;
  for (const std::vector<nn::SpanSpec>& specs : chunks) {
    std::int64_t elements = 0;
    for (const nn::SpanSpec& spec : specs) elements += spec.numel;
    largest = std::max(largest, elements);
  }
  const Tensor all = arena.take(optim::grads_dtype(plan.settings.optim), 1, largest);
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    std::int64_t offset = 0;
    for (const nn::SpanSpec& spec : chunks[c]) {
      // The streams of dp and edp do not wait for each other: each frees its part.
      shared[c].push_back({.grads = all.slice_cols(offset, spec.numel), .grads_at = spec.experts ? 1U : 0U});
      offset += spec.numel;
    }
  }
  return shared;
}

}  // namespace

std::vector<std::vector<optim::SharedBuffers>> carve_shared(Arena& arena, const Plan& plan, const mesh::Coord& at,
                                                            const std::vector<std::vector<nn::SpanSpec>>& chunks) {
  const optim::OptimConfig& config = plan.settings.optim;
  if (config.zero == 2) return carve_gradients(arena, plan, chunks);
  std::vector<std::vector<optim::SharedBuffers>> shared(chunks.size());
  for (std::size_t c = 0; c < chunks.size(); ++c) shared[c].resize(chunks[c].size());
  if (config.zero < 3) return shared;
  Kinds values, grads;
  // A layer's last bias is added in the next layer, whose span may be another.
  const nn::ModelConfig& model = plan.settings.model;
  const std::int64_t ahead = config.prefetch + (model.has_out_bias() || model.has_mlp_bias() ? 1 : 0);
  for (const Kind kind : {layers, experts}) values[kind].buffers = 1 + ahead, grads[kind].buffers = 2;
  values[vocabulary].buffers = grads[vocabulary].buffers = 1;
  const auto is_gathered = [&](const nn::SpanSpec& spec) { return plan.mesh.shard_place(spec.experts, at).shards > 1; };
  for (const std::vector<nn::SpanSpec>& specs : chunks) {
    for (const nn::SpanSpec& spec : specs) {
      count(grads[kind_of(spec)], spec.numel);
      if (is_gathered(spec)) count(values[kind_of(spec)], spec.numel);
    }
  }
  carve(arena, optim::grads_dtype(config), grads);
  carve(arena, plan.dtype, values);
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    for (std::size_t s = 0; s < chunks[c].size(); ++s) {
      const nn::SpanSpec& spec = chunks[c][s];
      optim::SharedBuffers& span = shared[c][s];
      take_turn(grads[kind_of(spec)], spec.numel, span.grads, span.grads_at);
      if (is_gathered(spec)) take_turn(values[kind_of(spec)], spec.numel, span.values, span.values_at);
    }
  }
  return shared;
}

}  // namespace ms::train
