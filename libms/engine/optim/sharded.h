// ZeRO: an optimizer (optimizer.h) whose state is sharded over dp, or over each shard group of dp (HSDP): gradients are
// reduce-scattered within a shard group, and the shards all-reduced over those who hold the same one. Decides where
// gradients are reduced and which part of a span this dp rank updates. It knows spans of parameters, not layers.
//
// Bytes per parameter (bf16 parameters, Adam, d = ranks of a shard group; zero 0 has groups of one): zero 0: 2 + 4 +
// 12; zero 1: 6 + 12/d; zero 2: 2 + 16/d and one chunk's gradient buffer that all chunks of the rank share; zero 3:
// 18/d and the buffers of a few spans that all share, for gradients and for gathered parameters. In f32 the parameter
// is its own master copy. In bf16, gradients (main_grads_dtype) take 2 bytes where these have 4, and Adam's two moments
// (moments_dtype) 4 where these have 8.
//
// Matrices that the optimizer takes whole (OptimizerKind::matrix_states) have one state in place of Adam's two: 4/d
// bytes less.
//
// Sums over whole parameters (OptimizerKind::sums): each rank sums its slices (tp rank 0 those that all tp ranks hold
// whole; padding is zeros), then one small all-reduce over the shard group and one over tp add them for all parameters
// of the rank.
// The two ends of a shared span hold the same bits and sum in the same order, so they get the same sums.
//
// A step: for every span, once its gradients are complete (zero 2 and 3: after each microbatch), reduce(); under zero 2
// and 3 then reduce_shard() once; then finish_step() once; before the first use of a span in a later step or an
// evaluation, gather() and before_use(). All but the before_ and after_ ones are collective over the groups they name,
// in the same order on every member.
//
// Under zero 3 each use of a span's parameters lies between gather(), before_use() and after_use(), and each backward
// that adds to its gradients between before_gradients() and reduce(): another span may have its buffer outside of them.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "mesh/mesh.h"
#include "mesh/range.h"
#include "optim/groups.h"
#include "optim/matrix_updates.h"
#include "optim/optimizer.h"
#include "optim/span_layout.h"
#include "tensor/stream.h"

namespace ms::optim {

using tensor::Arena;
using tensor::DType;
using tensor::Event;
using tensor::Tensor;

// A state of those elements of a span that have it and that this rank updates.
struct HeldState {
  // [1,n] in moments_dtype(): the elements of all parts, nothing between them; absent if there are none.
  Tensor values;
  std::vector<mesh::Range> parts;  // of the span, ascending

  // Returns the state of elements of one part; absent if they do not have it.
  Tensor of(const mesh::Range& elements) const;
};

// The buffers that a span shares with others of the rank, by views of its size, and their numbers among the rank's. The
// tensors are absent, and the numbers without meaning, where its memory is its own.
struct SharedBuffers {
  Tensor values = {}, grads = {};
  std::size_t values_at = 0, grads_at = 0;
};

// A span's tensors on this rank.
struct SpanMemory {
  Tensor values;       // [1,numel] in the compute type; zero 3: a shared buffer that it is gathered into
  Tensor value_shard;  // the part that this rank updates; a view of values unless those are in a shared buffer
  Tensor grads;        // [1,numel] in grads_dtype(); zero 2 and 3: a shared buffer
  Tensor grad_shard;   // the part this rank updates, of that type; a view of grads unless those are in a shared buffer
  Tensor master;       // of that part, f32; absent where the compute type is f32
  std::vector<HeldState> states;  // by state_names()
  mesh::Range own;                // that part
  SharedBuffers shared;
};

// Return the types of the gradients, and of the optimizer's states.
DType grads_dtype(const OptimConfig& config);
DType moments_dtype(const OptimConfig& config);

// Carves what the rank at a place among the replicas holds, beside what it shares.
SpanMemory carve_span(Arena& arena, const OptimConfig& config, const SpanLayout& layout, DType dtype,
                      const mesh::ShardPlace& place, const SharedBuffers& shared);

// The same where nothing is trained: the values only. Its gradients are addresses that must not be accessed, for layers
// that bind them with the values.
SpanMemory carve_values(Arena& arena, const SpanLayout& layout, DType dtype);

// Returns how many f64 sums over whole parameters the optimizer needs for a span.
std::int64_t parameter_sums(const OptimConfig& config, const SpanLayout& layout);

// Scalars of a step: sums over the world, then what they decide.
struct StepScalars {
  Tensor sums;            // f64 [1,2+kVotes]: sum of squared gradients, loss, votes
  Tensor factor, norm;    // f32 [1,1]
  Tensor parameter_sums;  // f64 [1,n], by parameter; absent where n is 0
  Tensor sum_squares() const { return sums.slice_cols(0, 1); }
  Tensor loss() const { return sums.slice_cols(1, 1); }
  // Votes of the ranks on what they must agree about, and the step's targets, all-reduced together with the sums at no
  // cost.
  Tensor votes() const { return sums.slice_cols(2, kVotes); }
  static constexpr std::int64_t kVotes = 7;
};
// Returns what an optimizer that takes matrices whole needs for all spans of the rank; nothing for others.
MatrixMemory carve_matrices(Arena& arena, const OptimConfig& config, const std::vector<SpanLayout>& layouts,
                            const MatrixPlace& place);

// `parameter_sums`: of all spans of the rank.
StepScalars carve_scalars(Arena& arena, std::int64_t parameter_sums);

class ShardedOptimizer {
 public:
  ShardedOptimizer(const OptimConfig& config, std::vector<SpanLayout> layouts, std::vector<SpanMemory> memory,
                   tensor::Stream& compute, const Groups& groups, const StepScalars& scalars,
                   const MatrixMemory& matrices = {});

  std::size_t spans() const { return layouts_.size(); }
  const SpanMemory& memory(std::size_t span) const { return memory_[span]; }

  // Reduces the span's gradients over dp; under zero 2 and 3 within the shard group only. All ops that add to them (of
  // this microbatch, under zero 2 and 3) are issued, and done at `complete`.
  void reduce(std::size_t span, const Event& complete);
  // All-reduces the shard of the span's gradients over the ranks that hold the same one, once all reductions within the
  // shard group are issued.
  void reduce_shard(std::size_t span);
  // The compute stream may add to the gradients again after this (zero 2 reuses the buffer).
  void before_backward();
  // The same of one span (zero 3), and clears what a backward does not set.
  void before_gradients(std::size_t span);
  // Clears the scalars and the gradients that backwards add to: a step begins.
  void begin_step();
  // Clears those of a span, once its buffer is free: for a backward of no step.
  void clear_gradients(std::size_t span) {
    before_backward();
    clear(compute_, span);
  }
  // The next updates wait for `event`: until then a save reads the state.
  void update_after(Event event) { update_after_ = std::move(event); }
  // Makes this rank's gradients of the step that has begun NaN, before they are reduced: an injected fault.
  void spoil_gradients() { spoils_ = true; }
  // Norm, clipping, update. `step` counts from 0. A norm that is not finite or above `skip_above` leaves all as it is.
  void finish_step(std::int64_t step, double lr, float skip_above = std::numeric_limits<float>::infinity());
  // All-gathers the span's parameters if an update made them stale, or another span has their buffer. Issues only.
  void gather(std::size_t span);
  // The compute stream may read the span's parameters after this.
  void before_use(std::size_t span);
  // It has issued all that reads them, which is done at `done`: another span may have their buffer.
  void after_use(std::size_t span, const Event& done);
  // The compute stream has changed parameters in another way than by an update: what shared buffers hold is stale.
  void parameters_changed();
  // The compute stream waits for every reduction and gather issued so far.
  void settle();

 private:
  Update update_of(std::size_t span, const mesh::Range& elements, const Rates& rates) const;
  const Replicas& replicas(std::size_t span) const { return groups_.replicas(layouts_[span].experts); }
  void clear(tensor::Stream& stream, std::size_t span) const;
  void add_shared_gradients(std::size_t span);
  void count_norm(std::size_t span);
  void find_parameter_sums();
  std::int64_t update(std::size_t span, std::int64_t first_sum);

  OptimConfig config_;
  const OptimizerKind& kind_;
  std::vector<SpanLayout> layouts_;
  std::vector<std::vector<Rates>> rates_;  // by span and parameter
  std::vector<SpanMemory> memory_;
  std::optional<MatrixUpdates> matrices_;
  tensor::Stream& compute_;
  Groups groups_;
  StepScalars scalars_;
  // By span. The update that made the other ranks' parts stale, which is all that their gather waits for; absent: they
  // are not stale. And that gather; absent: none is under way.
  std::vector<Event> updated_, gathered_;
  // By shared buffer of gradients, the last reduction of what was in it; and of parameters, the span that has it and
  // its last use.
  struct ValueBuffer {
    std::optional<std::size_t> span;
    Event used;
  };
  std::vector<Event> grads_free_;
  std::vector<ValueBuffer> values_;
  std::vector<bool> has_shard_;  // by span; zero 2 and 3: the step's first microbatch has been reduced
  bool spoils_ = false;
  Event update_after_;
  std::int64_t step_ = 0;  // the step and learning rate of finish_step()
  double lr_ = 0;
};

}  // namespace ms::optim
