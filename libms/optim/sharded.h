// The optimizer over spans: where gradients are summed over dp, which part of a span this dp rank updates, and the
// update. It knows spans of parameters, not layers.
//
// Bytes per parameter (bf16 parameters, d = dp): zero 0: 2 + 4 + 12; zero 1: 6 + 12/d; zero 2: 2 + 16/d and one chunk's
// gradient buffer that all chunks of the rank share. In f32 the parameter is its own master copy.
//
// A step: for every span, once its gradients are complete (zero 2: after each microbatch), reduce(); then finish_step()
// once; before the first use of a span in a later step or an evaluation, gather(). All are collective over the groups
// they name, in the same order on every member.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "mesh/range.h"
#include "optim/config.h"
#include "tensor/stream.h"

namespace ms::optim {

using tensor::Arena;
using tensor::DType;
using tensor::Event;
using tensor::Tensor;

// What the optimizer needs to know of a span, whoever made it.
struct Piece {  // one parameter's elements in the span
  std::string name;
  std::int64_t begin = 0, end = 0;
  bool decay = false;
};
struct SpanLayout {
  std::vector<Piece> pieces;    // by begin
  std::int64_t numel = 0;       // a multiple of dp * 64
  std::int64_t replicated = 0;  // [0, replicated): held whole by every tp rank
  bool shared = false;          // also on another pipeline stage; gradients are summed over that pair
  bool counts_in_norm = true;
};

// A span's tensors on this rank.
struct SpanMemory {
  Tensor values;        // [1,numel] in the compute type
  Tensor grads;         // [1,numel] f32; zero 2: a view of the buffer that the rank's chunks share
  Tensor grad_shard;    // the part this rank updates, f32; a view of grads unless zero is 2
  Tensor master, m, v;  // that part's state; no master in f32
  mesh::Range own;      // that part
};

// Elements of the gradient buffer that chunks share under zero 2.
SpanMemory carve_span(Arena& arena, const SpanLayout& layout, DType dtype, int zero, int dp, int dp_rank,
                      const Tensor& shared_grads);

// The groups of one rank. `pair` exists on the two ends of a shared span.
struct Groups {
  comm::Communicator& dp;
  comm::Communicator& tp;
  comm::Communicator& world;
  comm::Communicator* pair;
};

// Scalars of a step: sums over the world, then what they decide.
struct StepScalars {
  Tensor sums;          // f64 [1,2+kVotes]: sum of squared gradients, loss, votes
  Tensor factor, norm;  // f32 [1,1]
  Tensor sum_squares() const { return sums.slice_cols(0, 1); }
  Tensor loss() const { return sums.slice_cols(1, 1); }
  // Of whoever wants the ranks to agree on something: added up with the rest, at no cost.
  Tensor votes() const { return sums.slice_cols(2, kVotes); }
  static constexpr std::int64_t kVotes = 5;
};
StepScalars carve_scalars(Arena& arena);

class ShardedOptimizer {
 public:
  // `partial_replicated`: gradients of replicated parameters are partial sums over tp (sequence parallelism).
  ShardedOptimizer(const OptimConfig& config, std::vector<SpanLayout> layouts, std::vector<SpanMemory> memory,
                   tensor::Stream& compute, const Groups& groups, const StepScalars& scalars, bool partial_replicated);

  std::size_t spans() const { return layouts_.size(); }
  const SpanMemory& memory(std::size_t span) const { return memory_[span]; }

  // The compute stream has issued all that adds to this span's gradients (of this microbatch, under zero 2).
  void reduce(std::size_t span);
  // The compute stream may add to the span's gradients again after this (zero 2 reuses the buffer).
  void before_backward(std::size_t span);
  // Clears the gradients of all spans and the scalars: a step begins.
  void begin_step();
  // The next updates wait for this: until then somebody reads the state.
  void update_after(Event event) { update_after_ = std::move(event); }
  // Norm, clipping, update. `step` from 0 counts for Adam's bias correction; `lr` is its learning rate.
  void finish_step(std::int64_t step, double lr);
  // All-gathers the span's parameters if an update made them stale.
  void gather(std::size_t span);

 private:
  void update(std::size_t span, std::int64_t step, double lr);

  OptimConfig config_;
  std::vector<SpanLayout> layouts_;
  std::vector<SpanMemory> memory_;
  tensor::Stream& compute_;
  Groups groups_;
  StepScalars scalars_;
  bool partial_replicated_;
  std::vector<bool> stale_;
  std::vector<Event> buffer_free_;  // by span; zero 2
  Event update_after_;
};

}  // namespace ms::optim
