#include "optim/sharded.h"

#include <algorithm>
#include <utility>

#include "tensor/section.h"

namespace ms::optim {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

// Returns the parts of `own` whose elements have a state: neighbouring parameters that have it are one part.
std::vector<mesh::Range> parts_with(const OptimizerKind& kind, std::size_t state, const SpanLayout& layout,
                                    const mesh::Range& own) {
  if (kind.matrix_states.empty()) return {own};
  std::vector<mesh::Range> parts;
  bool continues = false;
  for (const ParamRange& param : layout.params) {
    const bool has = has_state(kind, state, static_cast<bool>(param.matrix));
    if (has && continues) parts.back().end = param.end;
    if (has && !continues) parts.push_back({param.begin, param.end});
    continues = has;
  }
  for (mesh::Range& part : parts) part = intersect(part, own);
  std::erase_if(parts, [](const mesh::Range& part) { return part.empty(); });
  return parts;
}

}  // namespace

DType grads_dtype(const OptimConfig& config) { return config.main_grads_dtype == "bf16" ? DType::bf16 : DType::f32; }
DType moments_dtype(const OptimConfig& config) { return config.moments_dtype == "bf16" ? DType::bf16 : DType::f32; }

SpanMemory carve_span(Arena& arena, const OptimConfig& config, const SpanLayout& layout, DType dtype,
                      const mesh::ShardPlace& place, const SharedBuffers& shared) {
  SpanMemory span;
  span.shared = shared;
  MS_ASSERT(layout.numel % place.shards == 0, "a span of {} elements in {} shards", layout.numel, place.shards);
  const std::int64_t own = layout.numel / place.shards;
  span.own = {own * place.shard(), own * (place.shard() + 1)};
  span.values = shared.values ? shared.values : arena.take(dtype, 1, layout.numel);
  span.value_shard = shared.values ? arena.take(dtype, 1, own) : span.values.slice_cols(span.own.begin, own);
  if (shared.grads) {
    span.grads = shared.grads;
    span.grad_shard = arena.take(grads_dtype(config), 1, own);
  } else {
    span.grads = arena.take(grads_dtype(config), 1, layout.numel);
    span.grad_shard = span.grads.slice_cols(span.own.begin, own);
  }
  if (dtype != DType::f32) span.master = arena.take(DType::f32, 1, own);
  const OptimizerKind& kind = optimizer_kind(config.name);
  for (std::size_t i = 0; i < state_names(kind).size(); ++i) {
    HeldState& state = span.states.emplace_back();
    state.parts = parts_with(kind, i, layout, span.own);
    std::int64_t elements = 0;
    for (const mesh::Range& held : state.parts) elements += held.size();
    if (elements > 0) state.values = arena.take(moments_dtype(config), 1, elements);
  }
  return span;
}

Tensor HeldState::of(const mesh::Range& elements) const {
  std::int64_t first = 0;
  for (const mesh::Range& part : parts) {
    if (part.begin <= elements.begin && elements.end <= part.end)
      return values.slice_cols(first + elements.begin - part.begin, elements.size());
    first += part.size();
  }
  return {};
}

SpanMemory carve_values(Arena& arena, const SpanLayout& layout, DType dtype) {
  SpanMemory span;
  span.own = {0, layout.numel};
  span.values = span.value_shard = arena.take(dtype, 1, layout.numel);
  span.grads = span.grad_shard = Arena::measuring().take(DType::f32, 1, layout.numel);
  return span;
}

std::int64_t parameter_sums(const OptimConfig& config, const SpanLayout& layout) {
  return optimizer_kind(config.name).sums * std::ranges::count_if(layout.params, &ParamRange::decay);
}

MatrixMemory carve_matrices(Arena& arena, const OptimConfig& config, const std::vector<SpanLayout>& layouts,
                            const MatrixPlace& place) {
  if (optimizer_kind(config.name).matrix_states.empty()) return {};
  return carve_matrices(arena, matrix_layout(config, layouts, place));
}

StepScalars carve_scalars(Arena& arena, std::int64_t parameter_sums) {
  return {arena.take(DType::f64, 1, 2 + StepScalars::kVotes), arena.take(DType::f32, 1, 1),
          arena.take(DType::f32, 1, 1), parameter_sums > 0 ? arena.take(DType::f64, 1, parameter_sums) : Tensor{}};
}

ShardedOptimizer::ShardedOptimizer(const OptimConfig& config, std::vector<SpanLayout> layouts,
                                   std::vector<SpanMemory> memory, Stream& compute, const Groups& groups,
                                   const StepScalars& scalars, const MatrixMemory& matrices)
    : config_(config),
      kind_(optimizer_kind(config.name)),
      layouts_(std::move(layouts)),
      memory_(std::move(memory)),
      compute_(compute),
      groups_(groups),
      scalars_(scalars),
      updated_(layouts_.size()),
      gathered_(layouts_.size()),
      has_shard_(layouts_.size()) {
  const std::vector<ParamGroup> groups_of_params = parse_groups(config_);
  for (const SpanLayout& layout : layouts_) {
    std::vector<Rates>& rates = rates_.emplace_back();
    for (const ParamRange& param : layout.params) {
      rates.push_back(rates_of(config_, groups_of_params, param.name, param.decay));
    }
  }
  for (const SpanMemory& span : memory_) {
    if (span.shared.grads) grads_free_.resize(std::max(grads_free_.size(), span.shared.grads_at + 1));
    if (span.shared.values) values_.resize(std::max(values_.size(), span.shared.values_at + 1));
  }
  if (!matrices.groups.empty())
    matrices_.emplace(matrix_layout(config_, layouts_, place_in(groups_)), matrices, compute_, groups_);
}

void ShardedOptimizer::begin_step() {
  const tensor::Section section(compute_, trace::Kind::other_compute);
  compute_.submit(Fill{scalars_.sums});
  if (config_.zero < 3)
    for (std::size_t i = 0; i < memory_.size(); ++i) clear(compute_, i);
  has_shard_.assign(has_shard_.size(), false);
}

void ShardedOptimizer::clear(Stream& stream, std::size_t index) const {
  for (const mesh::Range& range : layouts_[index].cleared)
    stream.submit(Fill{memory_[index].grads.slice_cols(range.begin, range.size())});
}

void ShardedOptimizer::before_backward() {
  for (const Event& free : grads_free_)
    if (free) compute_.wait(free);
}

void ShardedOptimizer::before_gradients(std::size_t index) {
  if (const Event& free = grads_free_[memory_[index].shared.grads_at]) compute_.wait(free);
  clear(compute_, index);
}

void ShardedOptimizer::reduce(std::size_t index, const Event& complete) {
  const SpanMemory& span = memory_[index];
  const Replicas& ranks = replicas(index);
  const bool reduces = ranks.reduces() || static_cast<bool>(span.shared.grads);
  if (!reduces && !spoils_) return;
  Stream& stream = ranks.workers().stream();
  stream.wait(complete);
  if (spoils_) {
    for (const ParamRange& param : layouts_[index].params) {
      stream.submit(
          Fill{span.grads.slice_cols(param.begin, param.end - param.begin), std::numeric_limits<float>::quiet_NaN()});
    }
  }
  if (!reduces) return;
  const Tensor part = span.grads.slice_cols(span.own.begin, span.own.size());
  if (ranks.shard != nullptr) ranks.shard->reduce_scatter(part, span.grads);
  if (!span.shared.grads) return reduce_shard(index);
  if (has_shard_[index]) {
    stream.submit(Add{span.grad_shard, span.grad_shard, part, {}});
  } else {
    stream.submit(Copy{span.grad_shard, part});
    has_shard_[index] = true;
  }
  if (config_.zero == 2) clear(stream, index);
  // The next backward that adds to the buffer waits for this.
  grads_free_[span.shared.grads_at] = stream.record();
}

void ShardedOptimizer::reduce_shard(std::size_t index) {
  const Replicas& ranks = replicas(index);
  if (ranks.replicate == nullptr) return;
  if (ranks.shard != nullptr) ranks.replicate->stream().wait(ranks.shard->stream().record());
  ranks.replicate->all_reduce(memory_[index].grad_shard);
}

void ShardedOptimizer::settle() {
  for (const bool experts : {false, true}) {
    if (experts && !groups_.edp) continue;
    for (comm::Communicator* group : {groups_.replicas(experts).shard, groups_.replicas(experts).replicate})
      if (group != nullptr) compute_.wait(group->stream().record());
  }
}

void ShardedOptimizer::finish_step(std::int64_t step, double lr, float skip_above) {
  step_ = step;
  lr_ = lr;
  spoils_ = false;
  settle();
  trace::Recorder* recorder = compute_.device().recorder();
  {
    const trace::Scope scope(recorder, {.purpose = trace::Purpose::clip});
    const tensor::Section section(compute_, trace::Kind::other_compute);
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      add_shared_gradients(i);
      count_norm(i);
    }
  }
  {
    const trace::Scope scope(recorder, {.purpose = trace::Purpose::clip});
    groups_.world.stream().wait(compute_.record());
    groups_.world.all_reduce(scalars_.sums);
    compute_.wait(groups_.world.stream().record());
  }
  const trace::Scope scope(recorder, {.purpose = trace::Purpose::optimizer});
  const tensor::Section section(compute_, trace::Kind::optimizer);
  compute_.submit(
      ClipFactor{scalars_.factor, scalars_.norm, scalars_.sum_squares(), static_cast<float>(config_.clip), skip_above});
  if (update_after_) compute_.wait(std::exchange(update_after_, {}));
  if (scalars_.parameter_sums) find_parameter_sums();
  if (matrices_) {
    matrices_->issue([&](std::size_t span, std::size_t param, const mesh::Range& elements) {
      return update_of(span, elements, rates_[span][param]);
    });
  }
  std::int64_t first_sum = 0;
  for (std::size_t i = 0; i < memory_.size(); ++i) first_sum = update(i, first_sum);
}

void ShardedOptimizer::add_shared_gradients(std::size_t index) {
  const SpanLayout& layout = layouts_[index];
  const SpanMemory& span = memory_[index];
  auto sum_over = [&](comm::Communicator& group, const mesh::Range& range) {
    const mesh::Range mine = intersect(span.own, range);
    if (mine.empty() || group.size() == 1) return;
    group.stream().wait(compute_.record());
    group.all_reduce(span.grad_shard.slice_cols(mine.begin - span.own.begin, mine.size()));
    compute_.wait(group.stream().record());
  };
  trace::Recorder* recorder = compute_.device().recorder();
  if (layout.partial > 0) {
    const trace::Scope scope(recorder, {.purpose = trace::Purpose::layernorm});
    sum_over(groups_.tp, {0, layout.partial});
  }
  if (layout.shared) {
    const trace::Scope scope(recorder, {.purpose = trace::Purpose::embedding});
    sum_over(*groups_.pair, {0, layout.numel});
  }
}

void ShardedOptimizer::count_norm(std::size_t index) {
  const SpanLayout& layout = layouts_[index];
  const SpanMemory& span = memory_[index];
  // Each element of the model counts once: replicated ones on tp rank 0, a shard on the first rank that holds it.
  const comm::Communicator* copies = replicas(index).replicate;
  if (!layout.counts_in_norm || (copies != nullptr && copies->rank() != 0)) return;
  const mesh::Range counted = intersect(span.own, {groups_.tp.rank() == 0 ? 0 : layout.replicated, layout.numel});
  if (counted.empty()) return;
  compute_.submit(
      SumSquares{scalars_.sum_squares(), span.grad_shard.slice_cols(counted.begin - span.own.begin, counted.size())});
}

// `elements`: of the span, within those that this rank updates.
Update ShardedOptimizer::update_of(std::size_t index, const mesh::Range& elements, const Rates& rates) const {
  const SpanMemory& span = memory_[index];
  const auto own = [&](const Tensor& all) { return all.slice_cols(elements.begin - span.own.begin, elements.size()); };
  Update update{.config = config_,
                .step = step_,
                .lr = static_cast<float>(lr_ * rates.lr),
                .weight_decay = static_cast<float>(rates.weight_decay),
                .param = own(span.value_shard),
                .master = span.master ? own(span.master) : Tensor{},
                .grad = own(span.grad_shard),
                .factor = scalars_.factor,
                .states = {},
                .sums = {}};
  for (const HeldState& state : span.states)
    if (const Tensor values = state.of(elements)) update.states.push_back(values);
  return update;
}

void ShardedOptimizer::find_parameter_sums() {
  compute_.submit(Fill{scalars_.parameter_sums});
  std::int64_t first_sum = 0;
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    for (std::size_t p = 0; p < layouts_[i].params.size(); ++p) {
      const ParamRange& param = layouts_[i].params[p];
      if (!param.decay) continue;
      const Tensor sums = scalars_.parameter_sums.slice_cols(first_sum, kind_.sums);
      first_sum += kind_.sums;
      const mesh::Range mine = intersect(memory_[i].own, {param.begin, param.end});
      if (mine.empty()) continue;
      Update update = update_of(i, mine, rates_[i][p]);
      const bool replicated = param.end <= layouts_[i].replicated;
      if (!replicated || groups_.tp.rank() == 0) update.sums = sums;
      kind_.issue_sums(compute_, update);
    }
  }
  auto sum_over = [&](comm::Communicator& group) {
    if (group.size() == 1) return;
    group.stream().wait(compute_.record());
    group.all_reduce(scalars_.parameter_sums);
    compute_.wait(group.stream().record());
  };
  if (groups_.dp.shard != nullptr) sum_over(*groups_.dp.shard);
  sum_over(groups_.tp);
}

// `first_sum`: the place of the span's first sum among the rank's; returns that of the next span.
std::int64_t ShardedOptimizer::update(std::size_t index, std::int64_t first_sum) {
  const std::vector<ParamRange>& params = layouts_[index].params;
  const std::vector<Rates>& rates = rates_[index];
  const auto is_alone = [&](std::size_t i) { return params[i].decay && kind_.sums > 0; };
  const auto is_whole = [&](std::size_t i) { return params[i].matrix && !kind_.matrix_states.empty(); };
  // One op for each run of neighbours with the same rates (gaps between parameters are zeros and stay zeros), and one
  // for each parameter that needs its own sums.
  for (std::size_t first = 0; first < params.size();) {
    if (is_whole(first)) {  // updated by matrices_
      ++first;
      continue;
    }
    const bool alone = is_alone(first);
    std::size_t last = first;
    const auto joins = [&](std::size_t i) { return rates[i] == rates[first] && !is_alone(i) && !is_whole(i); };
    while (!alone && last + 1 < params.size() && joins(last + 1)) ++last;
    const mesh::Range mine = intersect(memory_[index].own, {params[first].begin, params[last].end});
    if (!mine.empty()) {
      Update update = update_of(index, mine, rates[first]);
      if (alone) update.sums = scalars_.parameter_sums.slice_cols(first_sum, kind_.sums);
      kind_.issue_update(compute_, update);
    }
    if (alone) first_sum += kind_.sums;
    first = last + 1;
  }
  if (replicas(index).gathers()) updated_[index] = compute_.record();
  return first_sum;
}

void ShardedOptimizer::gather(std::size_t index) {
  const SpanMemory& span = memory_[index];
  ValueBuffer* const buffer = span.shared.values ? &values_[span.shared.values_at] : nullptr;
  const bool is_there = buffer == nullptr || buffer->span == index;
  if (is_there && !updated_[index]) return;
  comm::Communicator& shard = *replicas(index).shard;
  Stream& stream = shard.stream();
  if (updated_[index]) stream.wait(std::exchange(updated_[index], {}));
  if (buffer != nullptr && buffer->used) stream.wait(buffer->used);
  shard.all_gather(span.values, span.value_shard);
  gathered_[index] = stream.record();
  if (buffer != nullptr) buffer->span = index;
}

void ShardedOptimizer::before_use(std::size_t index) {
  if (gathered_[index]) compute_.wait(std::exchange(gathered_[index], {}));
}

void ShardedOptimizer::after_use(std::size_t index, const Event& done) {
  if (const SpanMemory& span = memory_[index]; span.shared.values) values_[span.shared.values_at].used = done;
}

void ShardedOptimizer::parameters_changed() {
  for (std::size_t i = 0; i < memory_.size(); ++i)
    if (memory_[i].shared.values) updated_[i] = compute_.record();
}

}  // namespace ms::optim
