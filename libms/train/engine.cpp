#include "train/engine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/rng.h"

namespace ms::train {

using namespace tensor;  // NOLINT: the op list is this file's vocabulary
using sched::Row;
using sched::What;

// What orders the streams around a chunk's slots and gradient buffers. An event that does not exist is no constraint.
struct Engine::ChunkState {
  struct Slot {
    Event received;  // the input has arrived
    Event done;      // the last compute that reads or writes the slot
    Event sent;      // the output has left
  };
  struct Gradient {
    Event received, done, sent;
  };
  std::vector<Slot> slots;
  std::vector<Gradient> ring;
  std::size_t next_received = 0, next_computed = 0, next_sent = 0;
};

// Host memory that a step's input travels through and its results come back to.
struct Engine::Pending {
  std::int64_t step = -1;
  Tensor tokens, targets, votes, sums, norm, factor;
  Event done;
};

namespace {

void wait_if(Stream& stream, const Event& event) {
  if (event) stream.wait(event);
}

void carve_pending(Arena& arena, const Plan& plan, std::vector<Tensor>& out) {
  const std::int64_t tokens = plan.microbatches * plan.settings.train.microbatch * plan.settings.model.seq;
  constexpr std::int64_t kVotes = optim::StepScalars::kVotes;
  out = {arena.take(DType::i32, 1, tokens),     arena.take(DType::i32, 1, tokens), arena.take(DType::f64, 1, kVotes),
         arena.take(DType::f64, 1, 2 + kVotes), arena.take(DType::f32, 1, 1),      arena.take(DType::f32, 1, 1)};
}

}  // namespace

Engine::~Engine() = default;

std::unique_ptr<comm::Communicator> Engine::open(const mesh::GroupSpec& group) {
  comm_streams_.push_back(device_.make_stream(group.name, StreamKind::comm));
  return world_.open({group.name, group.id, group.ranks}, *comm_streams_.back());
}

Engine::Engine(const Plan& plan, comm::World& world, Device& device)
    : plan_(plan),
      world_(world),
      device_(device),
      at_(plan.mesh.coord(world.rank())),
      shape_(plan.shape(at_.tp)),
      needs_input_(at_.pp == 0 || at_.pp == plan.mesh.pp - 1),
      channels_(mesh::kChannels) {
  memory_ = device.allocate(static_cast<std::size_t>(rank_memory(plan, at_).total_bytes), "the rank's tensors");
  Arena arena(*memory_);
  tensors_ = carve_rank(arena, plan, at_, nullptr);

  std::vector<Tensor> parts;
  Arena measured = Arena::measuring();
  carve_pending(measured, plan, parts);
  host_memory_ = device.allocate(static_cast<std::size_t>(2 * measured.used_bytes()), "the step's input and results");
  Arena host(*host_memory_);
  for (int i = 0; i < 2; ++i) {
    carve_pending(host, plan, parts);
    pending_.push_back({-1, parts[0], parts[1], parts[2], parts[3], parts[4], parts[5], {}});
  }

  const int rank = world.rank();
  const mesh::Groups groups(plan.mesh, plan.chunks, plan.settings.model.tied_embeddings);
  compute_ = device.make_stream("compute", StreamKind::compute);
  everyone_ = open(groups.world());
  tp_ = open(groups.along(mesh::Axis::tp, rank));
  dp_ = open(groups.along(mesh::Axis::dp, rank));
  for (int c = 0; c < mesh::kChannels; ++c) {
    if (const auto group = groups.channel(static_cast<mesh::Channel>(c), rank)) {
      channels_[static_cast<std::size_t>(c)] = open(*group);
    }
  }
  if (const auto group = groups.embedding(rank)) pair_ = open(*group);

  std::vector<optim::SpanLayout> layouts;
  std::vector<optim::SpanMemory> spans;
  for (int c = 0; c < plan.chunks; ++c) {
    const ChunkTensors& chunk = tensors_.chunks[static_cast<std::size_t>(c)];
    std::vector<nn::SpanTensors> views;
    for (std::size_t i = 0; i < chunk.specs.size(); ++i) {
      layouts.push_back(layout_of(chunk.specs[i]));
      spans.push_back(chunk.spans[i]);
      views.push_back({chunk.specs[i], chunk.spans[i].values, chunk.spans[i].grads});
    }
    model_.emplace_back(shape_, plan.part(at_.pp, c), views, tensors_.rotary);
    ChunkState state;
    state.slots.resize(chunk.slots.size());
    state.ring.resize(chunk.gradients.size());
    state_.push_back(std::move(state));
  }
  optimizer_.emplace(plan.settings.optim, std::move(layouts), std::move(spans), *compute_,
                     optim::Groups{*dp_, *tp_, *everyone_, pair_.get()}, tensors_.scalars,
                     shape_.sequence_parallel && shape_.tp > 1);
  if (tensors_.rotary) {
    compute_->submit(RotaryTable{tensors_.rotary, static_cast<float>(plan.settings.model.rotary_base)});
  }
}

std::size_t Engine::span_index(int chunk, std::size_t span) const {
  std::size_t index = span;
  for (int c = 0; c < chunk; ++c) index += tensors_.chunks[static_cast<std::size_t>(c)].specs.size();
  return index;
}

void Engine::initialize(std::uint64_t seed) {
  for (const ChunkTensors& chunk : tensors_.chunks) {
    for (std::size_t i = 0; i < chunk.specs.size(); ++i) {
      const nn::SpanSpec& spec = chunk.specs[i];
      const optim::SpanMemory& span = chunk.spans[i];
      // The f32 gradient buffer is free: values are made there, exact, then rounded into the parameters.
      compute_->submit(Fill{span.grads});
      for (const nn::ParamSpec& param : spec.params) {
        const mesh::ShardSpec& shard = param.shard;
        const Tensor x = span.grads.slice_cols(param.offset, param.numel()).reshape(shard.rows, shard.cols);
        if (param.init == nn::Init::ones) compute_->submit(Fill{x, 1.0F});
        if (param.init != nn::Init::normal) continue;
        compute_->submit(InitNormal{x, seed, rng_key("init " + shard.name), shard.row0, shard.col0, shard.global_cols,
                                    shard.global_rows, param.init_std});
      }
      compute_->submit(Copy{span.values, span.grads});
      if (span.master) compute_->submit(Copy{span.master, span.grads.slice_cols(span.own.begin, span.own.size())});
      compute_->submit(Fill{span.grads});
    }
  }
}

void Engine::upload(std::int64_t step, std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets) {
  if (!needs_input_) return;
  const Pending& pending = pending_[static_cast<std::size_t>(step % 2)];
  MS_ASSERT(static_cast<std::int64_t>(tokens.size()) == pending.tokens.cols && tokens.size() == targets.size(),
            "{} tokens and {} targets for a batch of {}", tokens.size(), targets.size(), pending.tokens.cols);
  std::memcpy(pending.tokens.data, tokens.data(), tokens.size_bytes());
  std::memcpy(pending.targets.data, targets.data(), targets.size_bytes());
  std::int64_t offset = 0;
  for (const nn::Microbatch& input : tensors_.input) {
    compute_->submit(Copy{input.tokens, pending.tokens.slice_cols(offset, input.tokens.cols)});
    compute_->submit(Copy{input.targets, pending.targets.slice_cols(offset, input.targets.cols)});
    offset += input.tokens.cols;
  }
}

void Engine::issue_step(std::int64_t step, double lr, std::span<const std::int32_t> tokens,
                        std::span<const std::int32_t> targets, const Votes& votes) {
  Pending& pending = pending_[static_cast<std::size_t>(step % 2)];
  MS_ASSERT(pending.step < 0, "step {} is issued while step {} is in flight", step, pending.step);
  upload(step, tokens, targets);
  optimizer_->begin_step();
  const std::array<double, optim::StepScalars::kVotes> cast{votes.stop, votes.save, votes.saving.writing,
                                                            votes.saving.committing, votes.saving.failed};
  std::copy(cast.begin(), cast.end(), pending.votes.as<double>());
  compute_->submit(Copy{tensors_.scalars.votes(), pending.votes});
  run(plan_.training, Mode::train, 1.0 / static_cast<double>(plan_.tokens_per_step()));
  optimizer_->finish_step(step, lr);
  compute_->submit(Copy{pending.sums, tensors_.scalars.sums});
  compute_->submit(Copy{pending.norm, tensors_.scalars.norm});
  compute_->submit(Copy{pending.factor, tensors_.scalars.factor});
  pending.step = step;
  pending.done = compute_->record();
}

StepResult Engine::finish_step(std::int64_t step) {
  Pending& pending = pending_[static_cast<std::size_t>(step % 2)];
  MS_ASSERT(pending.step == step, "step {} is awaited, but {} is in flight", step, pending.step);
  pending.done.synchronize();
  pending.step = -1;
  const double* sums = pending.sums.as<double>();
  return {sums[1], pending.norm.as<float>()[0], pending.factor.as<float>()[0] == 0.0F,
          Votes{sums[2], sums[3], {sums[4], sums[5], sums[6]}}};
}

double Engine::evaluate(std::span<const std::int32_t> tokens, std::span<const std::int32_t> targets,
                        double total_tokens) {
  Pending& pending = pending_[0];
  MS_ASSERT(pending.step < 0 && pending_[1].step < 0, "evaluation while a step is in flight");
  upload(0, tokens, targets);
  compute_->submit(Fill{tensors_.scalars.sums});
  run(plan_.evaluation, Mode::evaluate, 1.0 / total_tokens);
  everyone_->stream().wait(compute_->record());
  everyone_->all_reduce(tensors_.scalars.sums);
  compute_->wait(everyone_->stream().record());
  compute_->submit(Copy{pending.sums, tensors_.scalars.sums});
  compute_->synchronize();
  return pending.sums.as<double>()[1];
}

std::int32_t Engine::next_token(std::span<const std::int32_t> tokens, std::int64_t position, double temperature,
                                double uniform_draw) {
  const std::int64_t seq = plan_.settings.model.seq;
  MS_ASSERT(static_cast<std::int64_t>(tokens.size()) == seq && position < seq, "position {} of {}", position, seq);
  Pending& pending = pending_[0];
  if (at_.pp == 0) {
    const Tensor& input = tensors_.input.front().tokens;
    std::memset(pending.tokens.data, 0, static_cast<std::size_t>(input.size_bytes()));
    std::memcpy(pending.tokens.data, tokens.data(), tokens.size_bytes());
    compute_->submit(Copy{input, pending.tokens.slice_cols(0, input.cols)});
  }
  run(plan_.single, Mode::logits, 0);
  const int root = plan_.mesh.rank({.dp = 0, .pp = plan_.mesh.pp - 1, .tp = 0});
  if (plan_.holds_head(at_.pp)) {
    compute_->submit(Copy{tensors_.logits_row, tensors_.head.logits.slice_rows(position, 1)});
    tp_->stream().wait(compute_->record());
    tp_->all_gather(tensors_.logits_all, tensors_.logits_row);
    compute_->wait(tp_->stream().record());
  }
  if (world_.rank() == root) {
    std::vector<float> logits(static_cast<std::size_t>(tensors_.logits_all.numel()));
    const Tensor host{reinterpret_cast<std::byte*>(logits.data()), tensors_.logits_all.rows, tensors_.logits_all.cols,
                      tensors_.logits_all.cols, DType::f32};
    compute_->submit(Copy{host, tensors_.logits_all});
    compute_->synchronize();
    logits.resize(static_cast<std::size_t>(plan_.settings.model.vocab));
    const float top = *std::max_element(logits.begin(), logits.end());
    std::size_t chosen = 0;
    if (temperature > 0) {
      std::vector<double> sums(logits.size());
      double sum = 0;
      for (std::size_t i = 0; i < logits.size(); ++i) sums[i] = sum += std::exp((logits[i] - top) / temperature);
      chosen = static_cast<std::size_t>(std::upper_bound(sums.begin(), sums.end(), uniform_draw * sum) - sums.begin());
      chosen = std::min(chosen, logits.size() - 1);
    } else {
      chosen = static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    pending.tokens.as<std::int32_t>()[0] = static_cast<std::int32_t>(chosen);
    compute_->submit(Copy{tensors_.token, pending.tokens.slice_cols(0, 1)});
  }
  everyone_->stream().wait(compute_->record());
  everyone_->broadcast(tensors_.token, root);
  compute_->wait(everyone_->stream().record());
  compute_->submit(Copy{pending.tokens.slice_cols(0, 1), tensors_.token});
  compute_->synchronize();
  return pending.tokens.as<std::int32_t>()[0];
}

void Engine::gather_parameters() {
  for (std::size_t i = 0; i < optimizer_->spans(); ++i) optimizer_->gather(i);
}

void Engine::share_state() {
  const mesh::Mesh& mesh = plan_.mesh;
  // Operations of one group after the other: each waits for what the one before has brought.
  const auto then = [this](comm::Communicator& group, auto&& issue) {
    group.stream().wait(compute_->record());
    issue(group);
    compute_->wait(group.stream().record());
  };
  for (const ChunkTensors& chunk : tensors_.chunks) {
    for (std::size_t s = 0; s < chunk.specs.size(); ++s) {
      const nn::SpanSpec& spec = chunk.specs[s];
      const optim::SpanMemory& span = chunk.spans[s];
      const mesh::Range share = share_of(spec.numel, plan_, at_);
      const std::int64_t replicated = std::clamp<std::int64_t>(spec.replicated - share.begin, 0, share.size());
      for (const Tensor& all : {span.values, span.master, span.m, span.v}) {
        if (!all) continue;
        const std::int64_t first = all.cols == spec.numel ? 0 : span.own.begin;
        const Tensor mine = all.slice_cols(share.begin - first, share.size());
        if (replicated > 0 && mesh.tp > 1) {
          then(*tp_, [&](comm::Communicator& tp) { tp.broadcast(mine.slice_cols(0, replicated), 0); });
        }
        if (spec.shared) then(*pair_, [&](comm::Communicator& pair) { pair.broadcast(mine, 0); });
        // Parameters always; the rest where every dp rank holds all of it.
        if (mesh.dp > 1 && all.cols == spec.numel) {
          then(*dp_, [&](comm::Communicator& dp) { dp.all_gather(all, mine); });
        }
      }
    }
  }
  compute_->synchronize();
}

void Engine::synchronize() {
  compute_->synchronize();
  for (const auto& stream : comm_streams_) stream->synchronize();
}

void Engine::run(const sched::Schedule& schedule, Mode mode, double loss_scale) {
  for (const Row& row : schedule.rows[static_cast<std::size_t>(at_.pp)]) obey(row, mode, loss_scale);
}

comm::Communicator& Engine::channel(const Row& row) {
  comm::Communicator* channel = channels_[static_cast<std::size_t>(row.channel)].get();
  MS_ASSERT(channel != nullptr, "row {} uses a channel that rank {} does not have", sched::cell(row), world_.rank());
  return *channel;
}

void Engine::obey(const Row& row, Mode mode, double loss_scale) {
  ChunkState& state = state_[static_cast<std::size_t>(row.chunk)];
  ChunkTensors& tensors = tensors_.chunks[static_cast<std::size_t>(row.chunk)];
  switch (row.what) {
    case What::recv_forward: {
      ChunkState::Slot& slot = state.slots[static_cast<std::size_t>(row.slot)];
      comm::Communicator& from = channel(row);
      wait_if(from.stream(), slot.done);
      from.recv(tensors.slots[static_cast<std::size_t>(row.slot)].in());
      slot.received = from.stream().record();
      return;
    }
    case What::forward:
      return forward(row, mode, loss_scale);
    case What::send_forward: {
      ChunkState::Slot& slot = state.slots[static_cast<std::size_t>(row.slot)];
      comm::Communicator& to = channel(row);
      to.stream().wait(slot.done);
      to.send(tensors.slots[static_cast<std::size_t>(row.slot)].out);
      slot.sent = to.stream().record();
      return;
    }
    case What::recv_backward: {
      const std::size_t i = state.next_received++ % state.ring.size();
      comm::Communicator& from = channel(row);
      wait_if(from.stream(), state.ring[i].done);
      wait_if(from.stream(), state.ring[i].sent);
      from.recv(tensors.gradients[i]);
      state.ring[i].received = from.stream().record();
      return;
    }
    case What::backward:
      return backward(row, loss_scale);
    case What::send_backward: {
      const std::size_t i = state.next_sent++ % state.ring.size();
      comm::Communicator& to = channel(row);
      to.stream().wait(state.ring[i].done);
      to.send(tensors.gradients[i]);
      state.ring[i].sent = to.stream().record();
      return;
    }
    case What::gather_params:
      for (std::size_t i = 0; i < tensors.specs.size(); ++i) optimizer_->gather(span_index(row.chunk, i));
      return;
    case What::reduce_grads:
      if (plan_.settings.optim.zero == 2) return;  // done after every microbatch
      for (std::size_t i = 0; i < tensors.specs.size(); ++i) optimizer_->reduce(span_index(row.chunk, i));
      return;
  }
}

// The loss counts once: on tp rank 0.
Tensor Engine::loss_target() const { return at_.tp == 0 ? tensors_.scalars.loss() : tensors_.ignored_loss; }

void Engine::forward(const Row& row, Mode mode, double loss_scale) {
  ChunkState::Slot& slot = state_[static_cast<std::size_t>(row.chunk)].slots[static_cast<std::size_t>(row.slot)];
  const nn::Chunk& chunk = model_[static_cast<std::size_t>(row.chunk)];
  nn::ChunkSlot& tensors =
      tensors_.chunks[static_cast<std::size_t>(row.chunk)].slots[static_cast<std::size_t>(row.slot)];
  const nn::Microbatch& input = tensors_.input[static_cast<std::size_t>(row.microbatch)];
  const nn::TensorParallel on{*compute_, *tp_, shape_};
  if (!chunk.part().first) compute_->wait(slot.received);
  wait_if(*compute_, slot.sent);  // the output's memory
  chunk.forward(on, tensors, input, tensors_.scratch);
  if (chunk.part().last && mode == Mode::evaluate) {
    chunk.head_loss(on, tensors, input, tensors_.scratch, tensors_.head, loss_target(), loss_scale);
  } else if (chunk.part().last && mode == Mode::logits) {
    chunk.head_logits(on, tensors, tensors_.scratch, tensors_.head);
  }
  slot.done = compute_->record();
}

void Engine::backward(const Row& row, double loss_scale) {
  ChunkState& state = state_[static_cast<std::size_t>(row.chunk)];
  ChunkTensors& tensors = tensors_.chunks[static_cast<std::size_t>(row.chunk)];
  const nn::Chunk& chunk = model_[static_cast<std::size_t>(row.chunk)];
  ChunkState::Slot& slot = state.slots[static_cast<std::size_t>(row.slot)];
  const std::size_t i = state.next_computed++ % state.ring.size();
  if (chunk.part().last) {
    wait_if(*compute_, state.ring[i].sent);
  } else {
    compute_->wait(state.ring[i].received);
  }
  for (std::size_t s = 0; s < tensors.specs.size(); ++s) optimizer_->before_backward(span_index(row.chunk, s));
  chunk.backward({*compute_, *tp_, shape_}, tensors.slots[static_cast<std::size_t>(row.slot)],
                 tensors_.input[static_cast<std::size_t>(row.microbatch)], tensors_.scratch, tensors_.head,
                 tensors.gradients[i], loss_target(), loss_scale);
  slot.done = state.ring[i].done = compute_->record();
  if (plan_.settings.optim.zero != 2) return;
  for (std::size_t s = 0; s < tensors.specs.size(); ++s) optimizer_->reduce(span_index(row.chunk, s));
}

}  // namespace ms::train
