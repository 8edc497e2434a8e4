// The engine: one rank of the run. It issues a step's ops by obeying the rows of a schedule (executor.h); nothing in a
// step waits on the host. Every method is collective over the world and called by the rank's one host thread.
#pragma once

#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/world.h"
#include "data/token_rows.h"
#include "train/engine/executor.h"
#include "train/engine/expert_loads.h"
#include "train/engine/module_norms.h"
#include "train/engine/router_biases.h"
#include "train/engine/sampling.h"
#include "train/engine/state.h"

namespace ms::train {

// The votes of a rank at a step. They are summed over the world together with the step's loss, so all ranks take the
// same decision at the same step without a collective of its own.
struct Votes {
  double stop = 0, save = 0;  // ranks that want the run to stop, or to save, after the next boundary
  ckpt::SaveVotes saving;
  double probe = 0;  // ranks that want clocks compared after this step
};

struct StepResult {
  double loss = 0;
  double grad_norm = 0;
  bool skipped = false;  // the norm was not finite or above the limit: parameters and optimizer are as before
  Votes votes;           // of all ranks
  // Norms of the gradients by module_names(), before clipping; empty in steps without (metrics.grad_norms_every).
  std::vector<double> module_norms;
  // Tokens by layer and expert since the last such step; empty in steps without (metrics.expert_load_every).
  std::vector<double> expert_loads;
  double dropped = 0;  // the share of those for which there was no room (train.moe_capacity)
  // Rank 0's, as of issue_step(), on every rank: all may decide by it.
  std::int64_t num_targets = 0;

  // nullopt: there is no target, of which it would be the mean.
  std::optional<double> mean_loss() const { return num_targets > 0 ? std::optional(loss) : std::nullopt; }
};

class Engine {
 public:
  // Allocates everything that the run needs. The plan, the device and the groups' world outlive it.
  Engine(const Plan& plan, tensor::Device& device, RankGroups groups);
  // Opens the groups first.
  Engine(const Plan& plan, comm::World& world, tensor::Device& device);
  ~Engine();

  const mesh::Coord& at() const { return at_; }
  bool needs_input() const { return needs_input_; }

  // Initial parameters: a pure function of the seed and the parameters' names.
  void initialize(std::uint64_t seed);

  // Issues what the next step can begin with before its tokens are there: its first gathers of parameters, where
  // [overlap] dp is on. For whoever may have to wait for tokens; issue_step() does what is left.
  void prefetch() { executor_->prefetch(plan_.training); }

  // Issues step `step` (from 0) and returns at once. tokens and targets hold this dp rank's rows of the step's batch,
  // as target_mask.h marks them; empty where needs_input() is false. At most two steps may be in flight. `starts`:
  // where in its row each token's document begins, under [data] reset_attention; empty: a row is one document.
  // `skip_above`: the gradient norm above which the step changes nothing. `num_targets`: targets of the whole step that
  // are not ignored, over all ranks, whose mean is the loss; nullopt: all are targets. `patches`: of the
  // tokens, as data::ImageFile::read() writes them, for a model with images; empty: no token is a patch.
  void issue_step(std::int64_t step, double lr, const data::TokenRows& tokens, const data::TokenRows& targets,
                  const Votes& votes = {}, std::span<const std::int32_t> starts = {},
                  float skip_above = std::numeric_limits<float>::infinity(),
                  std::optional<std::int64_t> num_targets = {}, std::span<const std::int8_t> patches = {});
  // Makes this rank's gradients of the step that is issued next NaN: an injected fault.
  void spoil_gradients() { spoil_gradients_ = true; }
  // Waits for that step.
  StepResult finish_step(std::int64_t step);

  // Sum over the batch of loss / `total_targets`, no gradients; one global batch. Waits. nullopt, on every rank: one of
  // them passed `stop`.
  std::optional<double> evaluate(const data::TokenRows& tokens, const data::TokenRows& targets, double total_targets,
                                 std::span<const std::int32_t> starts = {}, bool stop = false,
                                 std::span<const std::int8_t> patches = {});

  // Computes a microbatch that dp rank `of` has of the step before on all dp ranks, forward and backward, and returns a
  // checksum of the loss and all gradients by dp rank; empty: they are all the same. Nothing is in flight; the
  // gradients of the step before are lost. Only of a plan with guard.replay_every. Waits.
  std::vector<std::uint64_t> replay(int of);
  // Flips a bit of an activation that the backward of this rank's next replay computes with: an injected fault, which
  // changes gradients and not the loss.
  void flip_bit() { flip_bit_ = true; }

  // Sum over the batch of the losses of all targets but the negative ones, in an order that is that of the batch; one
  // global batch. Only of a plan of inference. Waits.
  double sum_losses(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                    std::span<const std::int32_t> starts = {}, std::span<const std::int8_t> patches = {});

  // The token that follows position `position` of `tokens` (one sequence), drawn from the first `vocab` of the
  // vocabulary with `draw` in [0,1). The first `known` tokens are those of the call before: where keys and values are
  // kept (plan.caches), only those after them are computed. Waits.
  std::int32_t next_token(std::span<const std::int32_t> tokens, std::int64_t position, std::int64_t known,
                          const Sampling& sampling, std::int64_t vocab, double draw);

  // The rank's parameters and the gradients of the step before, of which it owns parts (optim::SpanMemory::own).
  const std::vector<ChunkTensors>& chunks() const { return tensors_.chunks; }

  // Returns the pieces that this rank saves to a checkpoint, and the tensors that hold them. After issue_step(), they
  // hold that step's state from the event of state_ready() until the event passed to update_after().
  std::vector<ckpt::Held> state() const { return held_state(plan_, at_, tensors_); }
  tensor::Event state_ready() { return compute().record(); }
  void update_after(tensor::Event event) { optimizer_->update_after(std::move(event)); }
  // Sends the pieces of state(), which every rank has filled, to the ranks that hold copies. Waits.
  void share_state();

  tensor::Stream& compute() { return *groups_.compute; }
  tensor::Device& device() { return device_; }
  // Waits until nothing is in flight on this rank.
  void synchronize();

 private:
  using Mode = Executor::Mode;
  // Host memory that a step's input travels through and its results come back to.
  struct Pending {
    std::int64_t step = -1;
    tensor::Tensor tokens, targets, votes, sums, norm, factor, module_squares, expert_loads, token_losses, starts,
        positions, patches;
    tensor::Event done;
  };

  // `tokens_all`: of this batch, over all ranks; given are those of a part of it, as whole sequences.
  void upload(std::int64_t step, std::int64_t tokens_all, const data::TokenRows& tokens, const data::TokenRows& targets,
              std::span<const std::int32_t> starts, std::span<const std::int8_t> patches, double target_weight = 1);
  // Calls take(first, count) for each run of this part's `tokens` that the rank has, in the order of its rows
  // (nn::Shape::cp).
  void each_own_run(std::int64_t tokens, const std::function<void(std::int64_t, std::int64_t)>& take) const;
  // Stores what this rank has of the sequences, in that order.
  void take_own(const data::TokenRows& rows, const tensor::Tensor& to) const;
  // `count`: tokens of this rank's part of the batch; no starts: each row is one document.
  void upload_starts(const Pending& pending, std::int64_t count, std::span<const std::int32_t> starts);
  void upload_patches(const Pending& pending, std::int64_t count, std::span<const std::int8_t> patches);
  void upload_offsets();  // ContextScratch::offsets
  Pending carve_pending(tensor::Arena& arena) const;
  // Issue the forward of the uploaded tokens, of a sequence or of [first, first + rows) of it, and return the logits
  // [1,V/tp] at `position` or at the last one; absent on other stages than the last.
  tensor::Tensor logits_of_sequence(std::int64_t position);
  tensor::Tensor logits_of_window(std::int64_t first, std::int64_t rows);
  // Computes the first microbatch of the input, and returns the checksum of this rank's loss and gradients.
  std::uint64_t replayed_bits();
  // Sums scalars.sums over the world, and returns the loss.
  double reduce_loss(Pending& pending);
  bool has_module_norms(std::int64_t step) const {
    return module_norms_ && (step + 1) % plan_.settings.metrics.grad_norms_every == 0;
  }
  bool has_expert_loads(std::int64_t step) const {
    return expert_loads_ && (step + 1) % plan_.settings.metrics.expert_load_every == 0;
  }

  const Plan& plan_;
  tensor::Device& device_;
  mesh::Coord at_;
  nn::Shape shape_;  // of a microbatch
  bool needs_input_;
  // Streams before what issues on them; memory before all of it: it goes last.
  std::unique_ptr<tensor::Memory> memory_, host_memory_;
  std::unique_ptr<tensor::Memory> staging_;  // what a replay hashes; absent before the first one
  RankTensors tensors_;
  RankGroups groups_;
  std::optional<optim::ShardedOptimizer> optimizer_;
  std::optional<Executor> executor_;
  std::optional<ModuleNorms> module_norms_;
  std::optional<ExpertLoads> expert_loads_;
  std::optional<RouterBiases> router_biases_;
  bool spoil_gradients_ = false, flip_bit_ = false;
  std::vector<Pending> pending_;  // two: a step in flight and the one before
};

}  // namespace ms::train
