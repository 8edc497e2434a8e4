#include "train/engine/state.h"

#include <algorithm>
#include <optional>

namespace ms::train {

using ckpt::State;
using tensor::DType;
using tensor::Tensor;

mesh::Range share_of(const nn::SpanSpec& span, const Plan& plan, const mesh::Coord& at) {
  const mesh::ShardPlace place = plan.mesh.shard_place(span.experts, at);
  const std::int64_t part = span.numel / place.replicas;  // spans are padded to equal parts
  const int index = place.shard() * place.groups() + place.group();
  return {part * index, part * (index + 1)};
}

namespace {

// Calls each(span index, range of the span, slice) for what this rank answers for of the parameters that `has` accepts,
// in the order of its spans.
template <class Has, class F>
void for_each_slice(const std::vector<nn::SpanSpec>& specs, const Plan& plan, const mesh::Coord& at, Has&& has,
                    F&& each) {
  for (std::size_t s = 0; s < specs.size(); ++s) {
    const nn::SpanSpec& spec = specs[s];
    if (spec.shared && !spec.counts_in_norm) continue;
    const mesh::Range share = share_of(spec, plan, at);
    for (const nn::ParamSpec& param : spec.params) {
      if ((param.shard.replicated && at.tp != 0) || !has(param)) continue;
      const mesh::Range range{std::max(share.begin, param.offset), std::min(share.end, param.offset + param.numel())};
      if (range.begin >= range.end) continue;
      ckpt::Slice slice = ckpt::slice_of(param.shard, {range.begin - param.offset, range.end - param.offset});
      if (slice.size() == 0) continue;  // padding
      each(s, mesh::Range{range.begin, range.begin + slice.size()}, std::move(slice));
    }
  }
}

// Calls each(chunk, layer of it, slice) for the biases of routers that this rank answers for: the first one of dp and
// tp does.
template <class F>
void for_each_bias(const Plan& plan, const mesh::Coord& at, F&& each) {
  const nn::ModelConfig& model = plan.settings.model;
  if (!model.router_bias || at.dp != 0 || at.tp != 0) return;
  for (int c = 0; c < plan.chunks; ++c) {
    const nn::ChunkPart part = plan.part(at.pp, c);
    for (std::int64_t i = part.layer_begin; i < part.layer_end; ++i) {
      if (model.has_experts(i))
        each(static_cast<std::size_t>(c), static_cast<std::size_t>(i - part.layer_begin),
             ckpt::whole(nn::router_bias_name(i), 1, model.experts));
    }
  }
}

struct HeldStateKind {
  State state;
  std::optional<std::size_t> of_optimizer = {};  // its place in optim::state_names()
};

// Returns the states of a run, in the order in which a file holds them.
std::vector<HeldStateKind> states_of(const Plan& plan) {
  std::vector<HeldStateKind> states{{State::weight}};
  if (plan.inference) return states;
  if (plan.dtype != DType::f32) states.push_back({State::master});
  const std::vector<std::string_view> names = optim::state_names(optim::optimizer_kind(plan.settings.optim.name));
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto state = ckpt::state_from(names[i]);
    MS_ASSERT(state, "checkpoints have no state {}", names[i]);
    states.push_back({*state, i});
  }
  return states;
}

// Returns whether parameters have a state.
auto having(const Plan& plan, const HeldStateKind& kind) {
  return [&optimizer = optim::optimizer_kind(plan.settings.optim.name), place = kind.of_optimizer](
             const nn::ParamSpec& param) { return !place || optim::has_state(optimizer, *place, param.matrix); };
}

DType dtype_of(const Plan& plan, const HeldStateKind& kind) {
  if (kind.of_optimizer) return optim::moments_dtype(plan.settings.optim);
  return kind.state == State::weight ? plan.dtype : DType::f32;
}

}  // namespace

std::vector<ckpt::Piece> saved_pieces(const Plan& plan, const mesh::Coord& at) {
  std::vector<ckpt::Piece> pieces;
  for (int c = 0; c < plan.chunks; ++c) {
    const std::vector<nn::SpanSpec> specs = plan.spans(at.pp, at.tp, c, at.dp);
    for (const HeldStateKind& kind : states_of(plan)) {
      for_each_slice(specs, plan, at, having(plan, kind), [&](std::size_t, const mesh::Range&, ckpt::Slice slice) {
        pieces.push_back({kind.state, dtype_of(plan, kind), std::move(slice)});
      });
    }
  }
  for_each_bias(plan, at, [&](std::size_t, std::size_t, ckpt::Slice slice) {
    pieces.push_back({State::weight, DType::f32, std::move(slice)});
  });
  return pieces;
}

std::int64_t copy_bytes(const Plan& plan, const mesh::Coord& at) {
  return ckpt::Saver::host_bytes(saved_pieces(plan, at));
}

std::vector<ckpt::Held> held_state(const Plan& plan, const mesh::Coord& at, const RankTensors& tensors) {
  std::vector<ckpt::Held> held;
  for (const ChunkTensors& chunk : tensors.chunks) {
    for (const HeldStateKind& kind : states_of(plan)) {
      const auto tensor_of = [&](const optim::SpanMemory& span, const mesh::Range& range) {
        if (kind.of_optimizer) return span.states[*kind.of_optimizer].of(range);
        const Tensor& own = kind.state == State::weight ? span.value_shard : span.master;
        return own.slice_cols(range.begin - span.own.begin, range.size());
      };
      for_each_slice(chunk.specs, plan, at, having(plan, kind),
                     [&](std::size_t s, const mesh::Range& range, ckpt::Slice slice) {
                       const Tensor tensor = tensor_of(chunk.spans[s], range);
                       held.push_back({{kind.state, dtype_of(plan, kind), std::move(slice)}, tensor});
                     });
    }
  }
  for_each_bias(plan, at, [&](std::size_t chunk, std::size_t layer, ckpt::Slice slice) {
    held.push_back({{State::weight, DType::f32, std::move(slice)}, tensors.chunks[chunk].routers[layer].bias});
  });
  return held;
}

std::vector<HeldGradient> held_gradients(const Plan& plan, const mesh::Coord& at, const RankTensors& tensors) {
  std::vector<HeldGradient> held;
  for (const ChunkTensors& chunk : tensors.chunks) {
    const auto all = [](const nn::ParamSpec&) { return true; };
    for_each_slice(chunk.specs, plan, at, all, [&](std::size_t s, const mesh::Range& range, const ckpt::Slice& slice) {
      const optim::SpanMemory& span = chunk.spans[s];
      held.push_back({slice.name, span.grad_shard.slice_cols(range.begin - span.own.begin, range.size())});
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
  for (std::int64_t i = 0; i < model.layers && model.router_bias; ++i) {
    if (model.has_experts(i)) parameters.push_back(ckpt::whole(nn::router_bias_name(i), 1, model.experts));
  }
  return parameters;
}

}  // namespace ms::train
