#include "optim/sharded.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ms::optim {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

namespace {

mesh::Range intersect(const mesh::Range& a, const mesh::Range& b) {
  const std::int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
  return begin < end ? mesh::Range{begin, end} : mesh::Range{begin, begin};
}

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

StepScalars carve_scalars(Arena& arena) {
  return {arena.take(DType::f64, 1, 2 + StepScalars::kVotes), arena.take(DType::f32, 1, 1),
          arena.take(DType::f32, 1, 1)};
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
      stale_(layouts_.size(), false),
      buffer_free_(layouts_.size()) {}

void ShardedOptimizer::begin_step() {
  compute_.submit(Fill{scalars_.sums});
  for (const SpanMemory& span : memory_) {
    if (config_.zero == 2) compute_.submit(Fill{span.grad_shard});
    compute_.submit(Fill{span.grads});
  }
}

void ShardedOptimizer::before_backward(std::size_t span) {
  if (buffer_free_[span]) compute_.wait(buffer_free_[span]);
}

void ShardedOptimizer::reduce(std::size_t index) {
  const SpanMemory& span = memory_[index];
  comm::Communicator& dp = groups_.dp;
  if (dp.size() == 1 && config_.zero != 2) return;
  Stream& stream = dp.stream();
  stream.wait(compute_.record());
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

void ShardedOptimizer::finish_step(std::int64_t step, double lr) {
  compute_.wait(groups_.dp.stream().record());
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    const SpanLayout& layout = layouts_[i];
    const SpanMemory& span = memory_[i];
    auto sum_over = [&](comm::Communicator& group, const mesh::Range& range) {
      const mesh::Range mine = intersect(span.own, range);
      if (mine.empty() || group.size() == 1) return;
      group.stream().wait(compute_.record());
      group.all_reduce(span.grad_shard.slice_cols(mine.begin - span.own.begin, mine.size()));
      compute_.wait(group.stream().record());
    };
    if (partial_replicated_) sum_over(groups_.tp, {0, layout.replicated});
    if (layout.shared) sum_over(*groups_.pair, {0, layout.numel});

    // Each element of the model counts once: replicated ones on tp rank 0, all of it on dp rank 0 where dp has copies.
    if (!layout.counts_in_norm || (config_.zero == 0 && groups_.dp.rank() != 0)) continue;
    const mesh::Range counted = intersect(span.own, {groups_.tp.rank() == 0 ? 0 : layout.replicated, layout.numel});
    if (counted.empty()) continue;
    compute_.submit(
        SumSquares{scalars_.sum_squares(), span.grad_shard.slice_cols(counted.begin - span.own.begin, counted.size())});
  }
  groups_.world.stream().wait(compute_.record());
  groups_.world.all_reduce(scalars_.sums);
  compute_.wait(groups_.world.stream().record());
  compute_.submit(ClipFactor{scalars_.factor, scalars_.norm, scalars_.sum_squares(), static_cast<float>(config_.clip)});
  if (update_after_) compute_.wait(std::exchange(update_after_, {}));
  for (std::size_t i = 0; i < memory_.size(); ++i) update(i, step, lr);
}

void ShardedOptimizer::update(std::size_t index, std::int64_t step, double lr) {
  const SpanLayout& layout = layouts_[index];
  const SpanMemory& span = memory_[index];
  AdamW op;
  op.factor = scalars_.factor;
  op.lr = static_cast<float>(lr);
  op.beta1 = static_cast<float>(config_.beta1);
  op.beta2 = static_cast<float>(config_.beta2);
  op.eps = static_cast<float>(config_.eps);
  op.correction1 = static_cast<float>(1.0 - std::pow(config_.beta1, static_cast<double>(step + 1)));
  op.correction2 = static_cast<float>(1.0 - std::pow(config_.beta2, static_cast<double>(step + 1)));
  // One op for each run of neighbours with the same decay; gaps between parameters are zeros and stay zeros.
  for (std::size_t first = 0; first < layout.pieces.size();) {
    std::size_t last = first;
    while (last + 1 < layout.pieces.size() && layout.pieces[last + 1].decay == layout.pieces[first].decay) ++last;
    const mesh::Range mine = intersect(span.own, {layout.pieces[first].begin, layout.pieces[last].end});
    if (!mine.empty()) {
      const std::int64_t begin = mine.begin - span.own.begin, count = mine.size();
      op.param = span.values.slice_cols(mine.begin, count);
      op.master = span.master ? span.master.slice_cols(begin, count) : Tensor{};
      op.m = span.m.slice_cols(begin, count);
      op.v = span.v.slice_cols(begin, count);
      op.grad = span.grad_shard.slice_cols(begin, count);
      op.weight_decay = static_cast<float>(layout.pieces[first].decay ? config_.weight_decay : 0.0);
      compute_.submit(op);
    }
    first = last + 1;
  }
  stale_[index] = config_.zero != 0 && groups_.dp.size() > 1;
}

void ShardedOptimizer::gather(std::size_t index) {
  if (!stale_[index]) return;
  const SpanMemory& span = memory_[index];
  Stream& stream = groups_.dp.stream();
  stream.wait(compute_.record());
  groups_.dp.all_gather(span.values, span.values.slice_cols(span.own.begin, span.own.size()));
  compute_.wait(stream.record());
  stale_[index] = false;
}

}  // namespace ms::optim
