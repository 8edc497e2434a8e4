#include "optim/sharded.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensor/section.h"

namespace ms::optim {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

mesh::Range intersect(const mesh::Range& a, const mesh::Range& b) {
  const std::int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
  return begin < end ? mesh::Range{begin, end} : mesh::Range{begin, begin};
}

// The tensors of `mine`, elements of a span that this rank updates.
struct State {
  State(const SpanMemory& span, const mesh::Range& mine) : param(span.values.slice_cols(mine.begin, mine.size())) {
    const std::int64_t begin = mine.begin - span.own.begin, count = mine.size();
    if (span.master) master = span.master.slice_cols(begin, count);
    m = span.m.slice_cols(begin, count);
    v = span.v.slice_cols(begin, count);
    grad = span.grad_shard.slice_cols(begin, count);
  }
  Tensor param, master, m, v, grad;
};

}  // namespace

SpanMemory carve_span(Arena& arena, const SpanLayout& layout, DType dtype, int zero, int dp, int dp_rank,
                      const Tensor& shared_grads) {
  SpanMemory span;
  MS_ASSERT(layout.numel % dp == 0, "a span of {} elements over dp {}", layout.numel, dp);
  const std::int64_t part = layout.numel / dp;
  span.own = zero == 0 ? mesh::Range{0, layout.numel} : mesh::Range{part * dp_rank, part * (dp_rank + 1)};
  const std::int64_t own = span.own.size();
  span.values = arena.take(dtype, 1, layout.numel);
  if (zero == 2) {
    span.grads = shared_grads;
    span.grad_shard = arena.take(DType::f32, 1, own);
  } else {
    span.grads = arena.take(DType::f32, 1, layout.numel);
    span.grad_shard = span.grads.slice_cols(span.own.begin, own);
  }
  if (dtype != DType::f32) span.master = arena.take(DType::f32, 1, own);
  span.m = arena.take(DType::f32, 1, own);
  span.v = arena.take(DType::f32, 1, own);
  return span;
}

std::int64_t scaled_parameters(const OptimConfig& config, const SpanLayout& layout) {
  if (config.name != "lamb") return 0;
  return std::count_if(layout.pieces.begin(), layout.pieces.end(), [](const Piece& piece) { return piece.decay; });
}

StepScalars carve_scalars(Arena& arena, std::int64_t scaled) {
  return {arena.take(DType::f64, 1, 2 + StepScalars::kVotes), arena.take(DType::f32, 1, 1),
          arena.take(DType::f32, 1, 1), scaled > 0 ? arena.take(DType::f64, 1, 2 * scaled) : Tensor{}};
}

ShardedOptimizer::ShardedOptimizer(const OptimConfig& config, std::vector<SpanLayout> layouts,
                                   std::vector<SpanMemory> memory, Stream& compute, const Groups& groups,
                                   const StepScalars& scalars, bool partial_replicated)
    : config_(config),
      layouts_(std::move(layouts)),
      memory_(std::move(memory)),
      compute_(compute),
      groups_(groups),
      scalars_(scalars),
      partial_replicated_(partial_replicated),
      updated_(layouts_.size()),
      gathered_(layouts_.size()),
      buffer_free_(layouts_.size()) {}

void ShardedOptimizer::begin_step() {
  const tensor::Section section(compute_, trace::Kind::other_compute);
  compute_.submit(Fill{scalars_.sums});
  for (const SpanMemory& span : memory_) {
    if (config_.zero == 2) compute_.submit(Fill{span.grad_shard});
    compute_.submit(Fill{span.grads});
  }
}

void ShardedOptimizer::before_backward(std::size_t span) {
  if (buffer_free_[span]) compute_.wait(buffer_free_[span]);
}

void ShardedOptimizer::reduce(std::size_t index, const Event& complete) {
  const SpanMemory& span = memory_[index];
  comm::Communicator& dp = groups_.dp;
  if (dp.size() == 1 && config_.zero != 2) return;
  Stream& stream = dp.stream();
  stream.wait(complete);
  if (config_.zero == 0) {
    dp.all_reduce(span.grads);
  } else {
    const Tensor part = span.grads.slice_cols(span.own.begin, span.own.size());
    dp.reduce_scatter(part, span.grads);
    if (config_.zero == 2) {
      stream.submit(Add{span.grad_shard, span.grad_shard, part, {}});
      stream.submit(Fill{span.grads});
      // Chunks share the buffer: whoever comes next waits for this.
      std::fill(buffer_free_.begin(), buffer_free_.end(), stream.record());
    }
  }
}

// The numbers that the update ops of a step have in common.
struct ShardedOptimizer::Rates {
  Rates(const OptimConfig& config, std::int64_t step, double rate)
      : lr(static_cast<float>(rate)),
        correction1(static_cast<float>(1.0 - std::pow(config.beta1, static_cast<double>(step + 1)))),
        correction2(static_cast<float>(1.0 - std::pow(config.beta2, static_cast<double>(step + 1)))) {}
  float lr, correction1, correction2;
};

void ShardedOptimizer::finish_step(std::int64_t step, double lr) {
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
  compute_.submit(ClipFactor{scalars_.factor, scalars_.norm, scalars_.sum_squares(), static_cast<float>(config_.clip)});
  if (update_after_) compute_.wait(std::exchange(update_after_, {}));
  const Rates rates(config_, step, lr);
  if (scalars_.lamb_norms) find_lamb_norms(rates);
  std::int64_t scaled = 0;
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    update(i, scaled, rates);
    scaled += scaled_parameters(config_, layouts_[i]);
  }
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
  if (partial_replicated_) {
    const trace::Scope scope(recorder, {.purpose = trace::Purpose::layernorm});
    sum_over(groups_.tp, {0, layout.replicated});
  }
  if (layout.shared) {
    const trace::Scope scope(recorder, {.purpose = trace::Purpose::embedding});
    sum_over(*groups_.pair, {0, layout.numel});
  }
}

void ShardedOptimizer::count_norm(std::size_t index) {
  const SpanLayout& layout = layouts_[index];
  const SpanMemory& span = memory_[index];
  // Each element of the model counts once: replicated ones on tp rank 0, all of it on dp rank 0 where dp has copies.
  if (!layout.counts_in_norm || (config_.zero == 0 && groups_.dp.rank() != 0)) return;
  const mesh::Range counted = intersect(span.own, {groups_.tp.rank() == 0 ? 0 : layout.replicated, layout.numel});
  if (counted.empty()) return;
  compute_.submit(
      SumSquares{scalars_.sum_squares(), span.grad_shard.slice_cols(counted.begin - span.own.begin, counted.size())});
}

void ShardedOptimizer::find_lamb_norms(const Rates& rates) {
  compute_.submit(Fill{scalars_.lamb_norms});
  LambMoments op;
  op.factor = scalars_.factor;
  op.beta1 = static_cast<float>(config_.beta1);
  op.beta2 = static_cast<float>(config_.beta2);
  op.eps = static_cast<float>(config_.eps);
  op.weight_decay = static_cast<float>(config_.weight_decay);
  op.correction1 = rates.correction1;
  op.correction2 = rates.correction2;
  std::int64_t scaled = 0;
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    for (const Piece& piece : layouts_[i].pieces) {
      if (!piece.decay) continue;
      const Tensor norms = scalars_.lamb_norms.slice_cols(2 * scaled++, 2);
      const mesh::Range mine = intersect(memory_[i].own, {piece.begin, piece.end});
      if (mine.empty()) continue;
      const State state(memory_[i], mine);
      const bool replicated = piece.end <= layouts_[i].replicated;
      op.norms = replicated && groups_.tp.rank() != 0 ? Tensor{} : norms;
      op.w = state.master ? state.master : state.param;
      op.m = state.m;
      op.v = state.v;
      op.grad = state.grad;
      compute_.submit(op);
    }
  }
  auto sum_over = [&](comm::Communicator& group) {
    if (group.size() == 1) return;
    group.stream().wait(compute_.record());
    group.all_reduce(scalars_.lamb_norms);
    compute_.wait(group.stream().record());
  };
  if (config_.zero != 0) sum_over(groups_.dp);  // under zero 0 each dp rank has summed all of it
  sum_over(groups_.tp);
}

// `first_scaled`: the place of the span's first scaled parameter among the rank's.
void ShardedOptimizer::update(std::size_t index, std::int64_t first_scaled, const Rates& rates) {
  const SpanLayout& layout = layouts_[index];
  const SpanMemory& span = memory_[index];
  const bool lamb = config_.name == "lamb";
  auto submit = [&](auto op, const mesh::Range& mine, double weight_decay) {
    const State state(span, mine);
    op.param = state.param;
    op.master = state.master;
    op.m = state.m;
    op.v = state.v;
    op.factor = scalars_.factor;
    op.lr = rates.lr;
    op.eps = static_cast<float>(config_.eps);
    op.weight_decay = static_cast<float>(weight_decay);
    op.correction1 = rates.correction1;
    op.correction2 = rates.correction2;
    if constexpr (requires { op.grad; }) {
      op.grad = state.grad;
      op.beta1 = static_cast<float>(config_.beta1);
      op.beta2 = static_cast<float>(config_.beta2);
    }
    compute_.submit(op);
  };
  // One op for each run of neighbours with the same decay (gaps between parameters are zeros and stay zeros), but for
  // each parameter that is scaled by its own norms.
  for (std::size_t first = 0; first < layout.pieces.size();) {
    const bool decay = layout.pieces[first].decay, scaled = lamb && decay;
    std::size_t last = first;
    while (!scaled && last + 1 < layout.pieces.size() && layout.pieces[last + 1].decay == decay) ++last;
    const mesh::Range mine = intersect(span.own, {layout.pieces[first].begin, layout.pieces[last].end});
    if (scaled) {
      LambApply op;
      op.norms = scalars_.lamb_norms.slice_cols(2 * first_scaled++, 2);
      if (!mine.empty()) submit(op, mine, config_.weight_decay);
    } else if (!mine.empty()) {
      submit(AdamW{}, mine, decay ? config_.weight_decay : 0.0);
    }
    first = last + 1;
  }
  if (config_.zero != 0 && groups_.dp.size() > 1) updated_[index] = compute_.record();
}

void ShardedOptimizer::gather(std::size_t index) {
  if (!updated_[index]) return;
  const SpanMemory& span = memory_[index];
  Stream& stream = groups_.dp.stream();
  stream.wait(std::exchange(updated_[index], {}));
  groups_.dp.all_gather(span.values, span.values.slice_cols(span.own.begin, span.own.size()));
  gathered_[index] = stream.record();
}

void ShardedOptimizer::before_use(std::size_t index) {
  if (gathered_[index]) compute_.wait(std::exchange(gathered_[index], {}));
}

}  // namespace ms::optim
