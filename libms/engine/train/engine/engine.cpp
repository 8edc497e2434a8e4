#include "train/engine/engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/rng.h"
#include "data/target_mask.h"

namespace ms::train {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary

Engine::Pending Engine::carve_pending(Arena& arena) const {
  const std::int64_t tokens = plan_.microbatches * shape_.tokens();
  constexpr std::int64_t kVotes = optim::StepScalars::kVotes;
  const std::int64_t modules = tensors_.module_squares.cols, loads = tensors_.expert_loads.cols;
  return {.step = -1,
          .tokens = arena.take(DType::i32, 1, tokens),
          .targets = arena.take(DType::i32, 1, tokens),
          .votes = arena.take(DType::f64, 1, kVotes),
          .sums = arena.take(DType::f64, 1, 2 + kVotes),
          .norm = arena.take(DType::f32, 1, 1),
          .factor = arena.take(DType::f32, 1, 1),
          .module_squares = modules > 0 ? arena.take(DType::f64, 1, modules) : Tensor{},
          .expert_loads = loads > 0 ? arena.take(DType::f64, 1, loads) : Tensor{},
          .token_losses = plan_.inference ? arena.take(DType::f32, 1, tokens) : Tensor{},
          .starts = plan_.settings.data.reset_attention ? arena.take(DType::i32, 1, tokens * shape_.cp) : Tensor{},
          .positions = plan_.takes_positions() ? arena.take(DType::i32, 1, tokens) : Tensor{},
          .patches = plan_.takes_patches(at_.pp)
                         ? arena.take(shape_.dtype, tokens, plan_.settings.model.patch_numbers())
                         : Tensor{},
          .done = {}};
}

Engine::~Engine() = default;

Engine::Engine(const Plan& plan, comm::World& world, Device& device)
    : Engine(plan, device, RankGroups(plan, world, device)) {}

Engine::Engine(const Plan& plan, Device& device, RankGroups groups)
    : plan_(plan),
      device_(device),
      at_(plan.mesh.coord(groups.world->rank())),
      shape_(plan.shape(at_.tp, at_.dp)),
      needs_input_(plan.needs_tokens(at_.pp)),
      groups_(std::move(groups)) {
  const bool registered = plan.settings.run.nccl_register;
  const auto bytes = static_cast<std::size_t>(rank_memory(plan, at_).total_bytes);
  constexpr const char* kWhat = "the rank's tensors";
  memory_ = registered ? groups_.world->allocate(bytes, kWhat) : device.allocate(bytes, kWhat);
  if (registered) groups_.register_memory(*memory_);
  Arena arena(*memory_);
  tensors_ = carve_rank(arena, plan, at_, nullptr);

  Arena measured = Arena::measuring();
  carve_pending(measured);
  host_memory_ =
      device.allocate_host(static_cast<std::size_t>(2 * measured.used_bytes()), "the step's input and results");
  Arena host(*host_memory_);
  for (int i = 0; i < 2; ++i) pending_.push_back(carve_pending(host));

  std::vector<optim::SpanLayout> layouts;
  std::vector<optim::SpanMemory> spans;
  for (const ChunkTensors& chunk : tensors_.chunks) {
    for (std::size_t i = 0; i < chunk.specs.size(); ++i) {
      layouts.push_back(layout_of(chunk.specs[i], plan));
      spans.push_back(chunk.spans[i]);
    }
  }
  optimizer_.emplace(
      plan.settings.optim, std::move(layouts), std::move(spans), compute(),
      optim::Groups{groups_.replicas(plan.mesh, false), *groups_.tp, *groups_.world, groups_.embedding.get(),
                    groups_.edp ? std::optional(groups_.replicas(plan.mesh, true)) : std::nullopt},
      tensors_.scalars, tensors_.matrices);
  executor_.emplace(plan, at_, shape_, tensors_, compute(), groups_, *optimizer_);
  if (tensors_.module_squares) module_norms_.emplace(plan, at_, tensors_, groups_);
  if (tensors_.expert_loads) expert_loads_.emplace(plan, at_, tensors_, groups_);
  if (tensors_.router_biases) router_biases_.emplace(tensors_, groups_, plan.settings.train.moe_bias_rate);
  for (const RotaryTable& table : nn::rotary_tables(tensors_.rotary, shape_)) compute().submit(table);
  if (tensors_.scratch.context.offsets) upload_offsets();
}

// Waits: what is uploaded is gone then.
void Engine::upload_offsets() {
  const Tensor& offsets = tensors_.scratch.context.offsets;
  std::vector<std::int32_t> host = nn::exchange_offsets(shape_);
  const Tensor from{reinterpret_cast<std::byte*>(host.data()), offsets.rows, offsets.cols, offsets.cols, DType::i32};
  compute().submit(Copy{offsets, from});
  compute().copy_to_host(offsets);
  compute().synchronize();
}

namespace {

// Calls each(row, column, rows, columns) for the rectangles that elements [begin, end) of a matrix of `cols` columns
// are, in order: the end of a row, whole rows, the beginning of a row.
template <class F>
void each_rectangle(std::int64_t begin, std::int64_t end, std::int64_t cols, F&& each) {
  while (begin < end) {
    const std::int64_t row = begin / cols, col = begin % cols, whole = (end - begin) / cols;
    const std::int64_t rows = col == 0 && whole > 0 ? whole : 1;
    const std::int64_t width = col == 0 && whole > 0 ? cols : std::min(cols - col, end - begin);
    each(row, col, rows, width);
    begin += rows * width;
  }
}

// Issues the initial values of elements `held` of a span. They are drawn in f32 and rounded to the type of `to`.
void initialize_span(Stream& compute, const nn::SpanSpec& spec, const Tensor& to, const mesh::Range& held,
                     std::uint64_t seed) {
  compute.submit(Fill{to});
  for (const nn::ParamSpec& param : spec.params) {
    const std::int64_t begin = std::max(held.begin, param.offset),
                       end = std::min(held.end, param.offset + param.numel());
    if (begin >= end || param.init == nn::Init::zeros) continue;
    Tensor rest = to.slice_cols(begin - held.begin, end - begin);
    if (param.init == nn::Init::ones) {
      compute.submit(Fill{rest, 1.0F});
      continue;
    }
    const mesh::ShardSpec& shard = param.shard;
    const auto init = [&](std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t cols) {
      const Tensor x = rest.slice_cols(0, rows * cols).reshape(rows, cols);
      compute.submit(InitNormal{x, seed, rng_key("init " + shard.name), shard.row0 + row, shard.col0 + col,
                                shard.global_cols, shard.global_rows, param.init_std});
      rest = rest.slice_cols(rows * cols, rest.cols - rows * cols);
    };
    each_rectangle(begin - param.offset, end - param.offset, shard.cols, init);
  }
}

}  // namespace

void Engine::initialize(std::uint64_t seed) {
  for (const ChunkTensors& chunk : tensors_.chunks) {
    for (std::size_t i = 0; i < chunk.specs.size(); ++i) {
      const nn::SpanSpec& spec = chunk.specs[i];
      const optim::SpanMemory& span = chunk.spans[i];
      if (span.shared.values) {
        initialize_span(compute(), spec, span.value_shard, span.own, seed);
      } else {
        initialize_span(compute(), spec, span.values, {0, spec.numel}, seed);
      }
      if (span.master) initialize_span(compute(), spec, span.master, span.own, seed);
      compute().submit(Fill{span.grads});
    }
  }
  optimizer_->parameters_changed();
  if (router_biases_) router_biases_->initialize();
}

void Engine::upload_starts(const Pending& pending, std::int64_t count, std::span<const std::int32_t> given) {
  if (!pending.positions) return;
  MS_ASSERT(given.empty() || std::ssize(given) == count, "{} starts for {} tokens", given.size(), count);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < positions.size(); ++i) {
    const std::int32_t start = given.empty() ? 0 : given[i];
    if (pending.starts) pending.starts.as<std::int32_t>()[i] = start;
    positions[i] = static_cast<std::int32_t>(static_cast<std::int64_t>(i) % plan_.settings.model.seq) - start;
  }
  take_own(positions, pending.positions);
  std::int64_t offset = 0;
  for (const nn::Microbatch& input : tensors_.input) {
    if (offset >= count / shape_.cp) break;
    if (input.starts)
      compute().submit(Copy{input.starts, pending.starts.slice_cols(offset * shape_.cp, input.starts.cols)});
    compute().submit(Copy{input.positions, pending.positions.slice_cols(offset, input.positions.cols)});
    offset += input.positions.cols;
  }
}

void Engine::each_own_run(std::int64_t tokens, const std::function<void(std::int64_t, std::int64_t)>& take) const {
  if (shape_.cp == 1) return take(0, tokens);
  const std::int64_t seq = plan_.settings.model.seq;
  for (std::int64_t first = 0; first < tokens; first += shape_.batch * seq) {
    for (int i = 0; i < shape_.pieces(); ++i) {
      for (std::int64_t b = 0; b < shape_.batch; ++b) take(first + b * seq + shape_.first_of_piece(i), shape_.piece());
    }
  }
}

void Engine::take_own(const data::TokenRows& rows, const Tensor& to) const {
  auto* own = to.as<std::int32_t>();
  if (shape_.cp == 1) return rows.copy_to(own);
  std::vector<std::int32_t> all(static_cast<std::size_t>(rows.size()));
  rows.copy_to(all.data());
  each_own_run(rows.size(),
               [&](std::int64_t first, std::int64_t count) { own = std::copy_n(all.data() + first, count, own); });
}

void Engine::upload(std::int64_t step, std::int64_t tokens_all, const data::TokenRows& tokens,
                    const data::TokenRows& targets, std::span<const std::int32_t> starts,
                    std::span<const std::int8_t> patches, double target_weight) {
  if (!needs_input_) return;
  for (nn::Microbatch& input : tensors_.input) input.target_weight = target_weight;
  const Pending& pending = pending_[static_cast<std::size_t>(step % 2)];
  const std::int64_t count = tokens_all / plan_.mesh.batch_parts(), own = count / shape_.cp;
  MS_ASSERT(tokens.size() == count && tokens.size() == targets.size() && own <= pending.tokens.cols,
            "{} tokens and {} targets for a batch of {}", tokens.size(), targets.size(), count);
  take_own(tokens, pending.tokens);
  take_own(targets, pending.targets);
  data::remove_marks({pending.tokens.as<std::int32_t>(), static_cast<std::size_t>(own)});
  std::int64_t offset = 0;
  for (const nn::Microbatch& input : tensors_.input) {
    if (offset == own) break;  // a step of the ramp-up has fewer
    compute().submit(Copy{input.tokens, pending.tokens.slice_cols(offset, input.tokens.cols)});
    compute().submit(Copy{input.targets, pending.targets.slice_cols(offset, input.targets.cols)});
    offset += input.tokens.cols;
  }
  upload_starts(pending, count, starts);
  upload_patches(pending, count, patches);
}

void Engine::issue_step(std::int64_t step, double lr, const data::TokenRows& tokens, const data::TokenRows& targets,
                        const Votes& votes, std::span<const std::int32_t> starts, float skip_above,
                        std::optional<std::int64_t> num_targets, std::span<const std::int8_t> patches) {
  Pending& pending = pending_[static_cast<std::size_t>(step % 2)];
  MS_ASSERT(pending.step < 0, "step {} is issued while step {} is in flight", step, pending.step);
  const std::int64_t tokens_all = plan_.tokens_of(step);
  const auto counted = static_cast<double>(num_targets.value_or(tokens_all));
  // Without a target the losses are 0, whatever their weight.
  upload(step, tokens_all, tokens, targets, starts, patches, static_cast<double>(tokens_all) / std::max(1.0, counted));
  optimizer_->begin_step();
  if (router_biases_) router_biases_->begin_step();
  if (std::exchange(spoil_gradients_, false)) optimizer_->spoil_gradients();
  const std::array<double, optim::StepScalars::kVotes> cast{votes.stop,
                                                            votes.save,
                                                            votes.saving.writing,
                                                            votes.saving.committing,
                                                            votes.saving.failed,
                                                            votes.probe,
                                                            groups_.world->rank() == 0 ? counted : 0};
  std::copy(cast.begin(), cast.end(), pending.votes.as<double>());
  compute().submit(Copy{tensors_.scalars.votes(), pending.votes});
  executor_->run(plan_.schedule_of(step), Mode::train, 1.0 / static_cast<double>(tokens_all));
  optimizer_->finish_step(step, lr, skip_above);
  if (router_biases_) router_biases_->finish_step();
  if (has_module_norms(step)) {
    module_norms_->issue();
    compute().submit(Copy{pending.module_squares, tensors_.module_squares});
  }
  if (has_expert_loads(step)) {
    expert_loads_->issue();
    compute().submit(Copy{pending.expert_loads, tensors_.expert_loads});
  }
  compute().submit(Copy{pending.sums, tensors_.scalars.sums});
  compute().submit(Copy{pending.norm, tensors_.scalars.norm});
  compute().submit(Copy{pending.factor, tensors_.scalars.factor});
  pending.step = step;
  pending.done = compute().record();
}

StepResult Engine::finish_step(std::int64_t step) {
  Pending& pending = pending_[static_cast<std::size_t>(step % 2)];
  MS_ASSERT(pending.step == step, "step {} is awaited, but {} is in flight", step, pending.step);
  pending.done.synchronize();
  pending.step = -1;
  const double* sums = pending.sums.as<double>();
  StepResult result{sums[1],
                    pending.norm.as<float>()[0],
                    pending.factor.as<float>()[0] == 0.0F,
                    Votes{sums[2], sums[3], {sums[4], sums[5], sums[6]}, sums[7]},
                    {},
                    {},
                    0,
                    static_cast<std::int64_t>(sums[8])};
  if (has_module_norms(step)) {
    const double* squares = pending.module_squares.as<double>();
    for (std::int64_t i = 0; i < pending.module_squares.cols; ++i) result.module_norms.push_back(std::sqrt(squares[i]));
  }
  if (has_expert_loads(step)) {
    const double* loads = pending.expert_loads.as<double>();
    double chosen = 0, kept = 0;
    const std::int64_t experts = plan_.settings.model.experts;
    for (const double* end = loads + pending.expert_loads.cols; loads < end; loads += experts + 1) {
      result.expert_loads.insert(result.expert_loads.end(), loads, loads + experts);
      chosen += std::accumulate(loads, loads + experts, 0.0);
      kept += loads[experts];
    }
    if (plan_.shape(0).drops()) result.dropped = std::max(0.0, 1 - kept / chosen);
  }
  return result;
}

std::optional<double> Engine::evaluate(const data::TokenRows& tokens, const data::TokenRows& targets,
                                       double total_targets, std::span<const std::int32_t> starts, bool stop,
                                       std::span<const std::int8_t> patches) {
  const trace::Scope scope(device_.recorder(), {.purpose = trace::Purpose::evaluation});
  Pending& pending = pending_[0];
  MS_ASSERT(pending.step < 0 && pending_[1].step < 0, "evaluation while a step is in flight");
  upload(0, plan_.tokens_per_step(), tokens, targets, starts, patches);
  compute().submit(Fill{tensors_.scalars.sums});
  auto* const votes = pending.votes.as<double>();
  std::fill_n(votes, pending.votes.cols, 0.0);
  votes[0] = stop ? 1.0 : 0.0;
  compute().submit(Copy{tensors_.scalars.votes(), pending.votes});
  executor_->run(plan_.evaluation, Mode::evaluate, 1.0 / std::max(1.0, total_targets));
  const double loss = reduce_loss(pending);
  return pending.sums.as<double>()[2] > 0 ? std::nullopt : std::optional(loss);
}

double Engine::reduce_loss(Pending& pending) {
  groups_.world->stream().wait(compute().record());
  groups_.world->all_reduce(tensors_.scalars.sums);
  compute().wait(groups_.world->stream().record());
  compute().submit(Copy{pending.sums, tensors_.scalars.sums});
  compute().synchronize();
  return pending.sums.as<double>()[1];
}

double Engine::sum_losses(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                          std::span<const std::int32_t> starts, std::span<const std::int8_t> patches) {
  const trace::Scope scope(device_.recorder(), {.purpose = trace::Purpose::evaluation});
  Pending& pending = pending_[0];
  upload(0, plan_.tokens_per_step(), tokens, targets, starts, patches);
  executor_->run(plan_.evaluation, Mode::evaluate, 0);
  double* sums = pending.sums.as<double>();
  std::fill_n(sums, pending.sums.cols, 0.0);
  if (tensors_.token_losses && at_.tp == 0) {  // as every tp rank has them
    compute().submit(Copy{pending.token_losses, tensors_.token_losses});
    compute().synchronize();
    const float* losses = pending.token_losses.as<float>();
    const auto* const own = pending.targets.as<std::int32_t>();
    for (std::int64_t i = 0; i < std::ssize(targets) / shape_.cp; ++i) sums[1] += own[i] >= 0 ? double{losses[i]} : 0.0;
  }
  compute().submit(Copy{tensors_.scalars.sums, pending.sums});
  return reduce_loss(pending);
}

void Engine::share_state() {
  const trace::Scope scope(device_.recorder(), {.purpose = trace::Purpose::checkpoint});
  const mesh::Mesh& mesh = plan_.mesh;
  // Operations of one group after the other: each waits for what the one before has brought.
  const auto then = [this](comm::Communicator& group, auto&& issue) {
    group.stream().wait(compute().record());
    issue(group);
    compute().wait(group.stream().record());
  };
  for (const ChunkTensors& chunk : tensors_.chunks) {
    for (std::size_t s = 0; s < chunk.specs.size(); ++s) {
      const nn::SpanSpec& spec = chunk.specs[s];
      const optim::SpanMemory& span = chunk.spans[s];
      const mesh::Range share = share_of(spec, plan_, at_);
      const optim::Replicas replicas = groups_.replicas(mesh, spec.experts);
      const mesh::ShardPlace place = mesh.shard_place(spec.experts, at_);
      const std::int64_t size = spec.numel / place.shards, begin = size * place.shard();  // of this rank's shard
      const std::int64_t replicated = std::clamp<std::int64_t>(spec.replicated - share.begin, 0, share.size());
      for (const Tensor& all : {span.shared.values ? span.value_shard : span.values, span.master}) {
        if (!all) continue;
        const std::int64_t first = all.cols == spec.numel ? 0 : span.own.begin;
        const Tensor mine = all.slice_cols(share.begin - first, share.size());
        if (replicated > 0 && mesh.tp > 1) {
          then(*groups_.tp, [&](comm::Communicator& tp) { tp.broadcast(mine.slice_cols(0, replicated), 0); });
        }
        if (spec.shared) then(*groups_.embedding, [&](comm::Communicator& pair) { pair.broadcast(mine, 0); });
        const Tensor shard = all.slice_cols(begin - first, size);
        if (replicas.replicate != nullptr)
          then(*replicas.replicate, [&](comm::Communicator& group) { group.all_gather(shard, mine); });
        if (replicas.gathers() && all.cols == spec.numel)
          then(*replicas.shard, [&](comm::Communicator& group) { group.all_gather(all, shard); });
      }
      for (const optim::HeldState& state : span.states) {
        for (const mesh::Range& part : state.parts) {
          const mesh::Range mine = intersect(part, share);
          const mesh::Range whole_on_tp = intersect(mine, {0, spec.replicated});
          if (!whole_on_tp.empty() && mesh.tp > 1)
            then(*groups_.tp, [&](comm::Communicator& tp) { tp.broadcast(state.of(whole_on_tp), 0); });
          if (!mine.empty() && spec.shared)
            then(*groups_.embedding, [&](comm::Communicator& pair) { pair.broadcast(state.of(mine), 0); });
          for (int i = 0; replicas.replicate != nullptr && i < place.groups(); ++i) {
            const std::int64_t from = begin + share.size() * i;
            const mesh::Range theirs = intersect(part, {from, from + share.size()});
            if (!theirs.empty())
              then(*replicas.replicate, [&](comm::Communicator& group) { group.broadcast(state.of(theirs), i); });
          }
        }
      }
    }
  }
  optimizer_->parameters_changed();
  if (router_biases_) router_biases_->share();
  compute().synchronize();
}

void Engine::synchronize() {
  compute().synchronize();
  for (const auto& stream : groups_.streams) stream->synchronize();
}

}  // namespace ms::train
