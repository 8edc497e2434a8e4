#include "train/engine/rank_tensors.h"

#include <algorithm>
#include <iterator>

#include "train/engine/module_norms.h"
#include "train/engine/shared_buffers.h"

namespace ms::train {

using tensor::Arena;
using tensor::DType;
using tensor::Tensor;

optim::SpanLayout layout_of(const nn::SpanSpec& spec, const Plan& plan) {
  optim::SpanLayout layout;
  for (const nn::ParamSpec& param : spec.params) {
    const mesh::ShardSpec& shard = param.shard;
    layout.params.push_back({shard.name, param.offset, param.offset + param.numel(), param.decay});
    if (!param.matrix) continue;
    layout.params.back().matrix = {.rows = shard.global_rows,
                                   .cols = shard.global_cols,
                                   .shards = shard.replicated ? 1
                                             : spec.experts   ? plan.mesh.expert_tp()
                                                              : plan.mesh.tp,
                                   .by_cols = shard.cols < shard.global_cols};
  }
  layout.numel = spec.numel;
  layout.replicated = spec.replicated;
  layout.partial = plan.settings.mesh.sequence_parallel ? spec.replicated : spec.by_head;
  layout.experts = spec.experts;
  layout.shared = spec.shared;
  layout.counts_in_norm = spec.counts_in_norm;
  if (!plan.sets_gradients()) {
    layout.cleared = {{0, spec.numel}};
    return layout;
  }
  // All that norms and positions add to is replicated. In a buffer that spans share, other spans' gradients lie between
  // its own.
  const bool clears_gaps = plan.settings.optim.zero == 3;
  std::int64_t end = spec.replicated;
  if (spec.replicated > 0) layout.cleared.push_back({0, spec.replicated});
  for (const nn::ParamSpec& param : spec.params) {
    if (param.offset < spec.replicated) continue;
    if (clears_gaps && param.offset > end) layout.cleared.push_back({end, param.offset});
    end = param.offset + param.numel();
    if (param.scattered) layout.cleared.push_back({param.offset, end});
  }
  if (clears_gaps && end < spec.numel) layout.cleared.push_back({end, spec.numel});
  return layout;
}

namespace {

class Tally {
 public:
  Tally(const Arena& arena, std::vector<MemoryRow>* rows) : arena_(arena), rows_(rows), last_(arena.used_bytes()) {}
  void add(const std::string& what) { add(what, {}, 0); }
  // `part_bytes` of it are for something that has a row of its own.
  void add(const std::string& what, const std::string& part, std::int64_t part_bytes) {
    const std::int64_t used = arena_.used_bytes();
    if (rows_ != nullptr) rows_->push_back({what, used - last_ - part_bytes});
    if (rows_ != nullptr && part_bytes > 0) rows_->push_back({part, part_bytes});
    last_ = used;
  }

 private:
  const Arena& arena_;
  std::vector<MemoryRow>* rows_;
  std::int64_t last_;
};

// Returns the chunks that any of the schedules puts into each slot of a rank.
using SlotParts = std::vector<nn::ChunkPart>;
std::vector<SlotParts> slot_parts(const Plan& plan, int pp_rank, const std::vector<const sched::Schedule*>& schedules) {
  std::vector<SlotParts> parts;
  for (const sched::Schedule* schedule : schedules) {
    for (const sched::Row& row : schedule->rows[static_cast<std::size_t>(pp_rank)]) {
      if (row.slot == sched::kNone) continue;
      const auto slot = static_cast<std::size_t>(row.slot);
      if (slot >= parts.size()) parts.resize(slot + 1);
      const nn::ChunkPart part = plan.part(pp_rank, row.chunk);
      const auto is_same = [&](const nn::ChunkPart& other) { return other.layer_begin == part.layer_begin; };
      if (std::ranges::none_of(parts[slot], is_same)) parts[slot].push_back(part);
    }
  }
  return parts;
}

std::vector<SlotParts> slot_parts(const Plan& plan, int pp_rank) {
  std::vector<const sched::Schedule*> schedules{&plan.training, &plan.evaluation, &plan.single};
  for (const auto& [microbatches, schedule] : plan.ramp) schedules.push_back(&schedule);
  if (plan.replay) schedules.push_back(&*plan.replay);
  return slot_parts(plan, pp_rank, schedules);
}

// Returns the kinds of all layers of a rank.
nn::LayerKinds kinds_of(const Plan& plan, int pp_rank) {
  SlotParts parts;
  for (int c = 0; c < plan.chunks; ++c) parts.push_back(plan.part(pp_rank, c));
  return nn::kinds_of(plan.settings.model, parts);
}

std::int64_t slot_bytes(const nn::Shape& shape, const SlotParts& parts) {
  Arena arena = Arena::measuring();
  const nn::LayerScratch scratch = nn::carve_scratch(arena, shape, nn::kinds_of(*shape.model, parts));
  const std::int64_t before = arena.used_bytes();
  nn::carve_slot(arena, shape, parts, scratch);
  return arena.used_bytes() - before;
}

void carve_caches(Arena& arena, const Plan& plan, const mesh::Coord& at, const nn::Shape& shape, RankTensors& rank) {
  for (int c = 0; c < plan.chunks; ++c) {
    const nn::ChunkPart part = plan.part(at.pp, c);
    std::vector<Tensor>& caches = rank.chunks[static_cast<std::size_t>(c)].caches;
    for (std::int64_t i = part.layer_begin; i < part.layer_end; ++i)
      caches.push_back(arena.take(shape.dtype, shape.model->seq, 2 * shape.kv_cols()));
  }
}

// Carves slots, scratch and head of a window.
void carve_window(Arena& arena, const Plan& plan, const mesh::Coord& at, const nn::Shape& shape, RankTensors& rank) {
  rank.scratch = nn::carve_scratch(arena, shape, kinds_of(plan, at.pp));
  rank.slots.clear();
  for (const SlotParts& parts : slot_parts(plan, at.pp, {&plan.single}))
    rank.slots.push_back(nn::carve_slot(arena, shape, parts, rank.scratch));
  nn::Shape last = shape;
  last.rows = 1;
  if (plan.holds_head(at.pp)) rank.head = nn::carve_head(arena, last);
}

// Returns the bytes that a slot keeps between the halves of a split backward; 0 without one.
std::int64_t split_bytes(const nn::Shape& shape, const SlotParts& parts) {
  if (!shape.split_backward) return 0;
  nn::Shape whole = shape;
  whole.split_backward = false;
  return slot_bytes(shape, parts) - slot_bytes(whole, parts);
}

// Returns where a rank stands among those that share matrices: a shard group, or if nothing is sharded all of dp.
optim::MatrixPlace matrix_place(const mesh::Mesh& mesh, const mesh::Coord& at) {
  const mesh::ShardPlace dense = mesh.shard_place(false, at), experts = mesh.shard_place(true, at);
  const bool sharded = dense.shards > 1;
  return {.dp = sharded ? dense.shards : mesh.dp,
          .dp_rank = sharded ? dense.shard() : at.dp,
          .edp = sharded ? experts.shards : mesh.edp(),
          .edp_rank = sharded ? experts.shard() : mesh.edp_rank(at),
          .tp = mesh.tp,
          .tp_rank = at.tp};
}

// Carves what a microbatch goes through, and what stages exchange.
void carve_activations(Arena& arena, const Plan& plan, const mesh::Coord& at, const nn::Shape& shape, RankTensors& rank,
                       Tally& tally) {
  rank.scratch = nn::carve_scratch(arena, shape, kinds_of(plan, at.pp));
  if (nn::TensorParallel::ring_used(shape, plan.settings.overlap.tp)) {
    rank.ring_received = arena.take(shape.dtype, shape.shard_tokens(), shape.model->hidden);
  }
  tally.add("layer scratch");
  std::int64_t kept_bytes = 0;
  for (const SlotParts& parts : slot_parts(plan, at.pp)) {
    rank.slots.push_back(nn::carve_slot(arena, shape, parts, rank.scratch));
    kept_bytes += split_bytes(shape, parts);
  }
  tally.add("activations", "kept for weights' gradients", kept_bytes);
  for (ChunkTensors& chunk : rank.chunks) {
    for (int i = 0; i < plan.gradient_buffers[static_cast<std::size_t>(at.pp)]; ++i) {
      chunk.gradients.push_back(arena.take(shape.dtype, shape.shard_tokens(), shape.model->hidden));
    }
  }
  tally.add("activation gradients");
  if (plan.holds_head(at.pp)) rank.head = nn::carve_head(arena, shape);
}

void carve_routers(Arena& arena, const Plan& plan, const mesh::Coord& at, RankTensors& rank) {
  const nn::ModelConfig& model = plan.settings.model;
  const nn::Shape shape = plan.shape(at.tp, at.dp);
  const bool trains = !plan.inference, reports = trains && plan.settings.metrics.expert_load_every > 0;
  std::int64_t routers = 0;
  for (int c = 0; c < plan.chunks; ++c) {
    const nn::ChunkPart part = plan.part(at.pp, c);
    for (std::int64_t i = part.layer_begin; i < part.layer_end; ++i) routers += model.has_experts(i) ? 1 : 0;
  }
  if (model.router_bias && routers > 0) {
    rank.router_biases = arena.take(DType::f32, routers, model.experts);
    if (trains) rank.router_chosen = arena.take(DType::f32, routers, model.experts);
    if (trains) rank.router_counts = arena.take(DType::f64, routers, model.experts);
  }
  if (reports) rank.expert_loads = arena.take(DType::f64, 1, model.layers * (model.experts + 1));
  // Ranks of ep that gather tokens route the same ones, and so do all of tp, unless ranks of tp share the routing: each
  // of these counts all for its own biases, and one for the report, but for the rows that were not dropped.
  const bool counts = shape.exchanges_slots || shape.shares_routing() || shape.ep_rank == 0;
  std::int64_t row = 0;
  for (int c = 0; c < plan.chunks; ++c) {
    const nn::ChunkPart part = plan.part(at.pp, c);
    for (std::int64_t i = part.layer_begin; i < part.layer_end; ++i) {
      nn::RouterBuffers& buffers = rank.chunks[static_cast<std::size_t>(c)].routers.emplace_back();
      if (!model.has_experts(i)) continue;
      if (rank.router_biases) buffers.bias = rank.router_biases.slice_rows(row, 1);
      if (rank.router_chosen && counts) buffers.chosen = rank.router_chosen.slice_rows(row, 1);
      if (reports && counts && (at.tp == 0 || shape.shares_routing()))
        buffers.load = arena.take(DType::f32, 1, model.experts + 1);
      ++row;
    }
  }
}

}  // namespace

nn::Shape window_shape(const Plan& plan, const mesh::Coord& at, std::int64_t first, std::int64_t rows) {
  MS_ASSERT(plan.caches && !plan.settings.mesh.sequence_parallel, "a window of tokens without keys and values");
  nn::Shape shape = plan.shape(at.tp, at.dp);
  shape.batch = 1, shape.first = first, shape.rows = rows;
  return shape;
}

RankTensors carve_window(const Plan& plan, const mesh::Coord& at, const RankTensors& rank, const nn::Shape& shape) {
  RankTensors window = rank;
  Arena arena = *rank.window;
  carve_window(arena, plan, at, shape, window);
  if (rank.rotary) window.rotary = rank.rotary.slice_rows(shape.first, shape.rows);
  window.input = {{rank.input.front().tokens.slice_cols(0, shape.rows), {}}};
  return window;
}

RankTensors carve_rank(Arena& arena, const Plan& plan, const mesh::Coord& at, std::vector<MemoryRow>* memory) {
  const nn::Shape shape = plan.shape(at.tp, at.dp);
  const auto layout = [&](const nn::SpanSpec& spec) { return layout_of(spec, plan); };
  Tally tally(arena, memory);
  RankTensors rank;
  rank.chunks.resize(static_cast<std::size_t>(plan.chunks));

  std::int64_t parameter_sums = 0;
  std::vector<std::vector<nn::SpanSpec>> specs;
  for (int c = 0; c < plan.chunks; ++c) specs.push_back(plan.spans(at.pp, at.tp, c, at.dp));
  std::vector<std::vector<optim::SharedBuffers>> shared;
  if (!plan.inference) shared = carve_shared(arena, plan, at, specs);
  if (!plan.inference && plan.settings.optim.zero >= 2)
    tally.add(plan.settings.optim.zero == 2 ? "gradient buffer" : "buffers of gathered parameters and gradients");
  for (std::size_t c = 0; c < specs.size(); ++c) {
    ChunkTensors& chunk = rank.chunks[c];
    for (std::size_t s = 0; s < specs[c].size(); ++s) {
      const optim::SpanLayout span = layout(specs[c][s]);
      if (plan.inference) {
        chunk.spans.push_back(optim::carve_values(arena, span, plan.dtype));
        continue;
      }
      parameter_sums += optim::parameter_sums(plan.settings.optim, span);
      chunk.spans.push_back(optim::carve_span(arena, plan.settings.optim, span, plan.dtype,
                                              plan.mesh.shard_place(span.experts, at), shared[c][s]));
    }
    chunk.specs = std::move(specs[c]);
  }
  tally.add(plan.inference ? "parameters" : "parameters, gradients, optimizer");
  if (!plan.inference) {
    std::vector<optim::SpanLayout> layouts;
    for (const ChunkTensors& chunk : rank.chunks)
      std::ranges::transform(chunk.specs, std::back_inserter(layouts), layout);
    rank.matrices = optim::carve_matrices(arena, plan.settings.optim, layouts, matrix_place(plan.mesh, at));
    if (!rank.matrices.groups.empty()) tally.add("matrices as a whole");
  }
  for (int c = 0; c < plan.chunks; ++c) {
    rank.chunks[static_cast<std::size_t>(c)].rounded = nn::carve_rounded_weights(arena, shape, plan.part(at.pp, c));
  }
  if (shape.fp8) tally.add("weights rounded to fp8");

  Tensor logits;
  if (plan.caches) {
    carve_caches(arena, plan, at, shape, rank);
    tally.add("keys and values");
    Arena measured = Arena::measuring();
    RankTensors largest;
    carve_window(measured, plan, at, window_shape(plan, at, 0, plan.settings.model.seq), largest);
    logits = largest.head.logits;
    rank.window = arena.take_arena(measured.used_bytes());
    tally.add("activations");
  } else {
    carve_activations(arena, plan, at, shape, rank, tally);
    logits = rank.head.logits;
  }
  if (plan.holds_head(at.pp)) {
    const std::int64_t columns = logits.cols;
    rank.logits_row = arena.take(shape.dtype, 1, columns);
    rank.logits_all = arena.take(shape.dtype, shape.tp, columns);
    if (plan.inference) rank.token_losses = arena.take(DType::f32, 1, plan.microbatches * shape.tokens());
    tally.add("logits and loss");
  }
  rank.rotary = nn::carve_rotary(arena, shape);
  for (int i = 0; i < plan.microbatches; ++i) {
    rank.input.push_back({arena.take(DType::i32, 1, shape.tokens()), arena.take(DType::i32, 1, shape.tokens())});
    if (plan.takes_positions()) rank.input.back().positions = arena.take(DType::i32, 1, shape.tokens());
    if (plan.takes_patches(at.pp))
      rank.input.back().patches = arena.take(shape.dtype, shape.tokens(), plan.settings.model.patch_numbers());
    if (plan.settings.data.reset_attention)
      rank.input.back().starts = arena.take(DType::i32, 1, shape.tokens() * shape.cp);
  }
  rank.scalars = optim::carve_scalars(arena, parameter_sums);
  rank.ignored_loss = arena.take(DType::f64, 1, 1);
  rank.token = arena.take(DType::i32, 1, 1);
  if (plan.settings.metrics.grad_norms_every > 0) {
    rank.module_squares = arena.take(DType::f64, 1, std::ssize(module_names(plan.settings.model)));
  }
  if (plan.settings.model.experts > 0) carve_routers(arena, plan, at, rank);
  tally.add("tokens and tables");
  return rank;
}

RankMemory rank_memory(const Plan& plan, const mesh::Coord& at) {
  RankMemory memory;
  Arena arena = Arena::measuring();
  carve_rank(arena, plan, at, &memory.rows);
  memory.total_bytes = arena.used_bytes();
  return memory;
}

}  // namespace ms::train
