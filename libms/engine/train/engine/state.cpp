#include "train/engine/state.h"

#include <algorithm>

namespace ms::train {

using ckpt::State;
using tensor::DType;
using tensor::Tensor;

mesh::Range share_of(const nn::SpanSpec& span, const Plan& plan, const mesh::Coord& at) {
  const int replicas = span.experts ? plan.mesh.edp() : plan.mesh.dp;
  const int index = span.experts ? at.dp / plan.mesh.ep : at.dp;
  const std::int64_t part = span.numel / replicas;  // spans are padded to equal parts
  return {part * index, part * (index + 1)};
}

namespace {

// Calls each(span index, param, range of the span, slice) for what this rank answers for, in the order of its spans.
template <class F>
void for_each_slice(const std::vector<nn::SpanSpec>& specs, const Plan& plan, const mesh::Coord& at, F&& each) {
  for (std::size_t s = 0; s < specs.size(); ++s) {
    const nn::SpanSpec& spec = specs[s];
    if (spec.shared && !spec.counts_in_norm) continue;
    const mesh::Range share = share_of(spec, plan, at);
    for (const nn::ParamSpec& param : spec.params) {
      if (param.shard.replicated && at.tp != 0) continue;
      const mesh::Range range{std::max(share.begin, param.offset), std::min(share.end, param.offset + param.numel())};
      if (range.begin >= range.end) continue;
      ckpt::Slice slice = ckpt::slice_of(param.shard, {range.begin - param.offset, range.end - param.offset});
      if (slice.size() == 0) continue;  // padding
      each(s, range.begin, std::move(slice));
    }
  }
}

// Returns the states of a run, in the order in which a file holds them; those of the optimizer come last.
std::vector<State> states_of(const Plan& plan) {
  std::vector<State> states{State::weight};
  if (plan.inference) return states;
  if (plan.dtype != DType::f32) states.push_back(State::master);
  for (const std::string_view name : optim::optimizer_kind(plan.settings.optim.name).states) {
    const auto state = ckpt::state_from(name);
    MS_ASSERT(state, "checkpoints have no state {}", name);
    states.push_back(*state);
  }
  return states;
}

DType dtype_of(const Plan& plan, State state) { return state == State::weight ? plan.dtype : DType::f32; }

}  // namespace

std::vector<ckpt::Piece> saved_pieces(const Plan& plan, const mesh::Coord& at) {
  std::vector<ckpt::Piece> pieces;
  for (int c = 0; c < plan.chunks; ++c) {
    const std::vector<nn::SpanSpec> specs = plan.spans(at.pp, at.tp, c, at.dp);
    for (const State state : states_of(plan)) {
      for_each_slice(specs, plan, at, [&](std::size_t, std::int64_t, ckpt::Slice slice) {
        pieces.push_back({state, dtype_of(plan, state), std::move(slice)});
      });
    }
  }
  return pieces;
}

std::int64_t copy_bytes(const Plan& plan, const mesh::Coord& at) {
  return ckpt::Saver::host_bytes(saved_pieces(plan, at));
}

std::vector<ckpt::Held> held_state(const Plan& plan, const mesh::Coord& at, const RankTensors& tensors) {
  std::vector<ckpt::Held> held;
  const std::vector<State> states = states_of(plan);
  for (const ChunkTensors& chunk : tensors.chunks) {
    for (std::size_t i = 0; i < states.size(); ++i) {
      const State state = states[i];
      for_each_slice(chunk.specs, plan, at, [&](std::size_t s, std::int64_t begin, ckpt::Slice slice) {
        const optim::SpanMemory& span = chunk.spans[s];
        const Tensor& all = state == State::weight   ? span.values
                            : state == State::master ? span.master
                                                     : span.states[i + span.states.size() - states.size()];
        const std::int64_t first = state == State::weight ? 0 : span.own.begin;  // of the span, in `all`
        const Tensor tensor = all.slice_cols(begin - first, slice.size());
        held.push_back({{state, dtype_of(plan, state), std::move(slice)}, tensor});
      });
    }
  }
  return held;
}

std::vector<HeldGradient> held_gradients(const Plan& plan, const mesh::Coord& at, const RankTensors& tensors) {
  std::vector<HeldGradient> held;
  for (const ChunkTensors& chunk : tensors.chunks) {
    for_each_slice(chunk.specs, plan, at, [&](std::size_t s, std::int64_t begin, const ckpt::Slice& slice) {
      const optim::SpanMemory& span = chunk.spans[s];
      held.push_back({slice.name, span.grad_shard.slice_cols(begin - span.own.begin, slice.size())});
    });
  }
  return held;
}

std::vector<ckpt::Slice> model_parameters(const nn::ModelConfig& model) {
  const mesh::Mesh one{1, 1, 1};
  std::vector<ckpt::Slice> parameters;
  for (const nn::SpanSpec& span : chunk_spans(model, one, 0, chunk_part(model, one, 0, 0, 1), 0)) {
    for (const nn::ParamSpec& param : span.params) {
      parameters.push_back(ckpt::whole(param.shard.name, param.shard.global_rows, param.shard.global_cols));
    }
  }
  return parameters;
}

}  // namespace ms::train
