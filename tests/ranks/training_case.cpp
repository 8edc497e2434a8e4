#include "training_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>

#include "base/rng.h"
#include "comm/thread_world.h"
#include "optim/learning_rate.h"

namespace ms::testing_case {
namespace {

// Token t of sequence `row` of `step`: noisy but learnable, a pure function of the three.
std::int32_t token_at(std::int64_t vocab, std::int64_t step, std::int64_t row, std::int64_t t) {
  std::uint64_t value = uniform_below(7, rng_key("start"), static_cast<std::uint64_t>(step * 1000 + row), 61);
  for (std::int64_t i = 0; i < t; ++i) {
    const auto index = static_cast<std::uint64_t>((step * 1000 + row) * 1000 + i);
    value =
        uniform(7, rng_key("noise"), index) < 0.2 ? uniform_below(7, rng_key("jump"), index, 61) : (value * 5 + 3) % 61;
  }
  return static_cast<std::int32_t>(static_cast<std::int64_t>(value) % vocab);
}

// Copies the part of `flat` (elements `own` of a span) that belongs to each parameter to its place in the logical
// parameter.
void scatter(const nn::SpanSpec& spec, const mesh::Range& own, const float* flat, Matrices& into) {
  for (const nn::ParamSpec& param : spec.params) {
    const mesh::ShardSpec& shard = param.shard;
    Matrix& matrix = into[shard.name];
    matrix.rows = shard.global_rows;
    matrix.cols = shard.global_cols;
    matrix.values.resize(static_cast<std::size_t>(matrix.rows * matrix.cols));
    for (std::int64_t i = 0; i < shard.logical_rows() * shard.cols; ++i) {
      const std::int64_t element = param.offset + i;
      if (!own.contains(element)) continue;
      const std::int64_t row = shard.row0 + i / shard.cols, col = shard.col0 + i % shard.cols;
      matrix.values[static_cast<std::size_t>(row * shard.global_cols + col)] = flat[element - own.begin];
    }
  }
}

// Host memory that a device can read and write.
struct HostFloats {
  HostFloats(tensor::Stream& stream, std::int64_t n)
      : memory(stream.device().allocate_host(static_cast<std::size_t>(n) * sizeof(float), "floats of a test")),
        tensor{memory->data(), 1, n, n, tensor::DType::f32} {}
  std::unique_ptr<tensor::Memory> memory;
  tensor::Tensor tensor;
};

std::vector<float> as_floats(tensor::Stream& stream, const tensor::Tensor& x) {
  const HostFloats host(stream, x.numel());
  stream.submit(tensor::Copy{host.tensor, x.flat()});
  stream.synchronize();
  return {host.tensor.as<float>(), host.tensor.as<float>() + x.numel()};
}

std::mutex outcome_mutex;  // ranks are threads here

}  // namespace

std::string Layout::name() const {
  return fmt::format("dp{}_tp{}_pp{}_v{}_{}_z{}{}{}{}{}", dp, tp, pp, chunks, sequence_parallel ? "sp" : "nosp", zero,
                     ep > 1 ? fmt::format("_ep{}", ep) : "", expert_tp > 0 ? fmt::format("_etp{}", expert_tp) : "",
                     gathers_tokens ? "_gathered" : "",
                     cp > 1 ? fmt::format("_cp{}_{}", cp,
                                          cp_type == "all-to-all" ? "exchanged"
                                          : cp_type == "ring"     ? "ring"
                                                                  : "gathered")
                            : "") +
         (shard_group > 0 ? fmt::format("_s{}", shard_group) : "");
}

Layout folded(Layout layout) {
  layout.expert_tp = 1;
  return layout;
}

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name(); }

train::Settings with(train::Settings settings, const Layout& layout) {
  settings.mesh.dp = layout.dp;
  settings.mesh.tp = layout.tp;
  settings.mesh.pp = layout.pp;
  settings.mesh.ep = layout.ep;
  settings.mesh.expert_tp = layout.expert_tp;
  settings.mesh.cp = layout.cp;
  settings.mesh.cp_type = layout.cp_type;
  if (layout.ep > 1) settings.train.moe_dispatch = layout.gathers_tokens ? "all_gather" : "all_to_all";
  settings.mesh.chunks = layout.chunks;
  settings.mesh.sequence_parallel = layout.sequence_parallel;
  settings.optim.zero = layout.zero;
  settings.optim.shard_group = layout.shard_group;
  return settings;
}

void fill_batch(const train::Plan& plan, std::int64_t step, int dp_rank, std::vector<std::int32_t>& tokens,
                std::vector<std::int32_t>& targets) {
  const std::int64_t rows = plan.batch.batch(step) / plan.mesh.batch_parts(), seq = plan.settings.model.seq;
  const int part = plan.mesh.batch_part(dp_rank);
  tokens.clear();
  targets.clear();
  for (std::int64_t row = rows * part; row < rows * (part + 1); ++row) {
    for (std::int64_t t = 0; t < seq; ++t) {
      tokens.push_back(token_at(plan.settings.model.vocab, step, row, t));
      targets.push_back(token_at(plan.settings.model.vocab, step, row, t + 1));
    }
  }
}

std::vector<std::int8_t> batch_patches(const train::Plan& plan, int dp_rank) {
  const std::int64_t rows = plan.batch.global_batch / plan.mesh.batch_parts(), seq = plan.settings.model.seq;
  const std::int64_t first = rows * plan.mesh.batch_part(dp_rank), size = plan.settings.model.patch_numbers();
  std::vector<std::int8_t> patches;
  for (std::int64_t token = first * seq; token < (first + rows) * seq; ++token) {
    for (std::int64_t i = 0; i < size; ++i) {
      const auto index = static_cast<std::uint64_t>(token * size + i);
      const auto colour = static_cast<std::int64_t>(uniform_below(7, rng_key("colour"), index, 256)) - 128;
      patches.push_back(static_cast<std::int8_t>(token % seq < seq / 2 ? colour : 0));
    }
  }
  return patches;
}

void equal_rows(const train::Plan& plan, std::vector<std::int32_t>& tokens, std::vector<std::int32_t>& targets) {
  const auto seq = static_cast<std::size_t>(plan.settings.model.seq);
  for (std::size_t i = seq; i < tokens.size(); ++i) tokens[i] = tokens[i % seq], targets[i] = targets[i % seq];
}

void train_matrices_only(train::Settings& settings) {
  settings.optim.clip = 0;
  settings.optim.groups.clear();
  for (const char* pattern : {"*norm*", "*.bias", "embed.*"})
    settings.optim.groups.push_back(std::string(pattern) + " lr=0 weight_decay=0");
}

std::vector<std::int32_t> batch_starts(const train::Plan& plan, int dp_rank) {
  std::vector<std::int32_t> starts;
  if (!plan.settings.data.reset_attention) return starts;
  const std::int64_t rows = plan.settings.train.global_batch / plan.mesh.batch_parts(), seq = plan.settings.model.seq;
  const int part = plan.mesh.batch_part(dp_rank);
  for (std::int64_t row = rows * part; row < rows * (part + 1); ++row) {
    const std::int64_t length = row + 1 == plan.settings.train.global_batch ? seq : row % 5 + 2;
    for (std::int64_t t = 0; t < seq; ++t) starts.push_back(static_cast<std::int32_t>(t / length * length));
  }
  return starts;
}

void collect_gradients(train::Engine& engine, Matrices& into) {
  for (const train::ChunkTensors& chunk : engine.chunks()) {
    for (std::size_t i = 0; i < chunk.specs.size(); ++i) {
      const std::vector<float> flat = as_floats(engine.compute(), chunk.spans[i].grad_shard);
      const std::lock_guard lock(outcome_mutex);
      scatter(chunk.specs[i], chunk.spans[i].own, flat.data(), into);
    }
  }
}

void collect_moments(train::Engine& engine, Matrices& first, Matrices& second) {
  for (const train::ChunkTensors& chunk : engine.chunks()) {
    for (std::size_t i = 0; i < chunk.specs.size(); ++i) {
      const std::vector<optim::HeldState>& states = chunk.spans[i].states;
      for (std::size_t s = 0; s < states.size(); ++s) {
        for (const mesh::Range& part : states[s].parts) {
          const std::vector<float> flat = as_floats(engine.compute(), states[s].of(part));
          const std::lock_guard lock(outcome_mutex);
          scatter(chunk.specs[i], part, flat.data(), s == 1 ? second : first);
        }
      }
    }
  }
}

namespace {

// Returns the biases of routers that this rank saves.
std::vector<ckpt::Held> held_biases(const train::Engine& engine) {
  std::vector<ckpt::Held> held = engine.state();
  std::erase_if(held, [](const ckpt::Held& each) { return !each.piece.slice.name.ends_with("router.bias"); });
  return held;
}

}  // namespace

void collect_parameters(train::Engine& engine, Matrices& into) {
  for (const train::ChunkTensors& chunk : engine.chunks()) {
    for (std::size_t i = 0; i < chunk.specs.size(); ++i) {
      const std::vector<float> flat = as_floats(engine.compute(), chunk.spans[i].value_shard);
      const std::lock_guard lock(outcome_mutex);
      scatter(chunk.specs[i], chunk.spans[i].own, flat.data(), into);
    }
  }
  for (const ckpt::Held& bias : held_biases(engine)) {
    std::vector<float> values = as_floats(engine.compute(), bias.tensor);
    const std::lock_guard lock(outcome_mutex);
    into[bias.piece.slice.name] = {1, bias.tensor.cols, std::move(values)};
  }
  engine.synchronize();
}

void load_parameters(train::Engine& engine, const Matrices& from) {
  for (const train::ChunkTensors& chunk : engine.chunks()) {
    for (std::size_t i = 0; i < chunk.specs.size(); ++i) {
      const HostFloats host(engine.compute(), chunk.specs[i].numel);
      float* flat = host.tensor.as<float>();
      for (const nn::ParamSpec& param : chunk.specs[i].params) {
        const mesh::ShardSpec& shard = param.shard;
        const Matrix& matrix = from.at(shard.name);
        for (std::int64_t e = 0; e < shard.logical_rows() * shard.cols; ++e) {
          const std::int64_t row = shard.row0 + e / shard.cols, col = shard.col0 + e % shard.cols;
          flat[param.offset + e] = matrix.values[static_cast<std::size_t>(row * matrix.cols + col)];
        }
      }
      const optim::SpanMemory& span = chunk.spans[i];
      for (const tensor::Tensor& own : {span.value_shard, span.master})
        if (own) engine.compute().submit(tensor::Copy{own, host.tensor.slice_cols(span.own.begin, span.own.size())});
      engine.compute().synchronize();
    }
  }
  for (const ckpt::Held& bias : held_biases(engine)) {
    const HostFloats host(engine.compute(), bias.tensor.cols);
    std::ranges::copy(from.at(bias.piece.slice.name).values, host.tensor.as<float>());
    engine.compute().submit(tensor::Copy{bias.tensor, host.tensor});
    engine.compute().synchronize();
  }
  engine.share_state();
}

train::Settings tiny_settings(const std::string& family) {
  train::Settings settings;
  const bool has_experts = family == "moe" || family == "dots" || family == "mixtral";
  settings.model.family = has_experts ? "llama" : family;
  settings.model.layers = 8;
  settings.model.hidden = 64;
  settings.model.heads = 16;
  settings.model.kv_heads = family == "gpt" ? 0 : 8;
  settings.model.ffn_hidden = 96;
  settings.model.vocab = 61;
  settings.model.seq = 16;
  settings.model.tied_embeddings = false;
  settings.model.init_std = 0.05;
  settings.train.global_batch = 8;
  settings.train.microbatch = 1;
  settings.train.dtype = "fp32";
  if (has_experts) {
    settings.model.experts = 8, settings.model.experts_per_token = 2, settings.model.expert_ffn_hidden = 48;
    settings.model.shared_experts = family == "mixtral" ? 0 : 1;
    settings.model.shared_expert_gate = settings.model.shared_experts > 0;
    settings.train.moe_aux_loss = 0.02, settings.train.moe_z_loss = 1e-3;
  }
  if (family == "dots") {
    settings.model.dense_layers = "0,6";
    settings.model.router = "sigmoid", settings.model.router_bias = true;
    settings.model.router_groups = 4, settings.model.router_groups_per_token = 2;
    settings.train.moe_bias_rate = 0.01;
  }
  if (family == "neox") settings.model.exact_gelu = true, settings.model.rotary_dim = 2;
  settings.train.steps = 20;
  settings.optim.lr = 3e-3;
  settings.optim.schedule = "constant";
  return settings;
}

void run_rank(const train::Plan& plan, comm::World& world, tensor::Device& device, int steps, Outcome& outcome) {
  train::Engine engine(plan, world, device);
  engine.initialize(static_cast<std::uint64_t>(plan.settings.train.seed));
  std::vector<std::int32_t> tokens, targets;
  const std::vector<std::int32_t> starts = batch_starts(plan, engine.at().dp);
  const std::vector<std::int8_t> patches = batch_patches(plan, engine.at().dp);
  std::vector<double> losses, norms;
  for (int step = 0; step < steps; ++step) {
    engine.prefetch();
    tokens.clear();
    targets.clear();
    if (engine.needs_input()) fill_batch(plan, step, engine.at().dp, tokens, targets);
    engine.issue_step(step, optim::learning_rate(plan.settings.optim, step, steps), tokens, targets, {}, starts,
                      std::numeric_limits<float>::infinity(), {}, patches);
    const train::StepResult result = engine.finish_step(step);
    losses.push_back(result.loss);
    norms.push_back(result.grad_norm);
    if (step == 0) collect_gradients(engine, outcome.gradients);
  }
  tokens.clear();
  targets.clear();
  if (engine.needs_input()) fill_batch(plan, 999, engine.at().dp, tokens, targets);
  const double valid =
      *engine.evaluate(tokens, targets, static_cast<double>(plan.tokens_per_step()), starts, false, patches);
  collect_parameters(engine, outcome.parameters);
  const std::lock_guard lock(outcome_mutex);
  outcome.losses = losses;
  outcome.norms = norms;
  outcome.valid_loss = valid;
}

void observe_step(const train::Plan& plan, comm::World& world, tensor::Device& device, tensor::OpObserver& observer) {
  Outcome outcome;
  device.set_observer(&observer);
  run_rank(plan, world, device, 1, outcome);
  device.set_observer(nullptr);
}

void on_threads(const train::Settings& settings, const Body& body, const Devices& devices) {
  const int ranks = static_cast<int>(settings.mesh.ranks());
  const train::Plan plan = train::make_plan(settings, ranks);
  tensor::MatmulCache matmuls;
  tensor::CpuPool pool(tensor::CpuPool::size_for(2, ranks, ranks));
  comm::ThreadHub hub(ranks, std::chrono::seconds(60));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<comm::World> world = hub.world(rank);
      try {
        const std::unique_ptr<tensor::Device> device =
            devices ? devices(pool) : std::make_unique<tensor::CpuDevice>(pool, matmuls);
        body(plan, *world, *device);
        world->close();
      } catch (const Error& error) {
        world->abort(error);
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
}

Outcome run_threads(const train::Settings& settings, int steps, const Devices& devices) {
  Outcome outcome;
  on_threads(
      settings,
      [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
        run_rank(plan, world, device, steps, outcome);
      },
      devices);
  return outcome;
}

Distance distance(const Matrices& a, const Matrices& b) {
  Distance worst;
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [name, x] : a) {
    // Softmax ignores a shift of all keys' scores: the gradient of k's bias is rounding noise around zero, unless
    // rotary positions turn the bias with its key.
    if (name.ends_with("attn.k.bias") && a.contains("embed.positions.weight")) continue;
    const auto it = b.find(name);
    if (it == b.end() || it->second.values.size() != x.values.size()) return {INFINITY, name};
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < x.values.size(); ++i) {
      const double d = double{x.values[i]} - double{it->second.values[i]};
      difference += d * d;
      norm += double{x.values[i]} * double{x.values[i]};
    }
    const double relative = norm == 0 ? (difference == 0 ? 0 : INFINITY) : std::sqrt(difference / norm);
    if (!(relative <= worst.value)) worst = {relative, name};
  }
  return worst;
}

bool same_bits(const Matrices& a, const Matrices& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [name, x] : a) {
    const auto it = b.find(name);
    if (it == b.end() || it->second.values.size() != x.values.size()) return false;
    if (std::memcmp(it->second.values.data(), x.values.data(), x.values.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace ms::testing_case
