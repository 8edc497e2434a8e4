// A tiny training run in any layout, and its results independent of the layout: losses, and gradients and parameters by
// logical name. The parity tests compare them between layouts and between worlds.
#pragma once

#include <functional>
#include <iosfwd>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "comm/world.h"
#include "tensor/cpu_device.h"
#include "train/engine/engine.h"

namespace ms::testing_case {

struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<float> values;
};
using Matrices = std::map<std::string, Matrix>;

struct Outcome {
  std::vector<double> losses, norms;
  Matrices gradients;   // of the first step, before clipping
  Matrices parameters;  // after the last step
  double valid_loss = 0;
};

// A family at a size where every factorisation of 8 fits: 8 layers, 16 heads (8 key-value heads), vocabulary 61. "moe"
// is llama with eight experts in place of the MLP, of which a token passes two, a shared one, and both losses of
// routers; "dots" is "moe" with the router of DeepSeek-V3 and with two dense layers, one of which shares slots with
// layers with experts over chunks; "mixtral" is "moe" without a shared expert.
train::Settings tiny_settings(const std::string& family);

// The layout of a run over ranks.
struct Layout {
  int dp = 1, tp = 1, pp = 1, chunks = 1;
  bool sequence_parallel = true;
  int zero = 1;
  int ep = 1;
  bool gathers_tokens = false;  // of all ep ranks; else these exchange slots
  int cp = 1;
  std::string_view cp_type = "all-gather";
  int expert_tp = 0;
  std::int64_t shard_group = 0;
  std::string name() const;
};
// Returns the layout where each rank of tp holds whole experts.
Layout folded(Layout layout);
void PrintTo(const Layout& layout, std::ostream* out);
train::Settings with(train::Settings settings, const Layout& layout);

// Returns this dp rank's rows of a step's batch: noisy but learnable tokens, a pure function of step and row.
void fill_batch(const train::Plan& plan, std::int64_t step, int dp_rank, std::vector<std::int32_t>& tokens,
                std::vector<std::int32_t>& targets);

// Makes all rows of a batch equal to its first one. Twice and four times a matrix's gradient is exact, and so is three
// times it plus it: of four rows, such gradients have the same bits for 1, 2 and 4 dp ranks.
void equal_rows(const train::Plan& plan, std::vector<std::int32_t>& tokens, std::vector<std::int32_t>& targets);
// Trains matrices only, without what a backward adds to token by token, nor clipping, whose norm is a sum over ranks.
void train_matrices_only(train::Settings& settings);

// The patches of its tokens, in all batches the same: of a model with images every row begins with one; else empty.
std::vector<std::int8_t> batch_patches(const train::Plan& plan, int dp_rank);

// Where the documents of its tokens begin, under [data] reset_attention: lengths vary, and the last row is one
// document.
std::vector<std::int32_t> batch_starts(const train::Plan& plan, int dp_rank);

// Adds the elements that a rank owns to the outcome; thread-safe. Gradients are those of the last step. Parameters
// include the biases of routers.
void collect_gradients(train::Engine& engine, Matrices& into);
void collect_parameters(train::Engine& engine, Matrices& into);
// The first moments, or the momentum in place of them.
void collect_moments(train::Engine& engine, Matrices& first, Matrices& second);
// Replaces the initial parameters (and the optimizer's master copy) by these.
void load_parameters(train::Engine& engine, const Matrices& from);

// Runs one rank for `steps` steps and adds the elements it owns to `outcome` (losses on every rank).
void run_rank(const train::Plan& plan, comm::World& world, tensor::Device& device, int steps, Outcome& outcome);
// Trains one step on a rank, whose operations the observer sees. Collective, as run_rank() is.
void observe_step(const train::Plan& plan, comm::World& world, tensor::Device& device, tensor::OpObserver& observer);

// Runs `body` on every rank of the settings' mesh, with ranks as threads; an exception fails the test. Each rank has a
// CPU device, or the one that `devices` creates.
using Body = std::function<void(const train::Plan&, comm::World&, tensor::Device&)>;
using Devices = std::function<std::unique_ptr<tensor::Device>(tensor::CpuPool&)>;
void on_threads(const train::Settings& settings, const Body& body, const Devices& devices = {});
Outcome run_threads(const train::Settings& settings, int steps, const Devices& devices = {});

// Returns the largest relative L2 distance over the matrices, and where; ignores keys whose true gradient is zero.
struct Distance {
  double value = 0;
  std::string name;
};
Distance distance(const Matrices& a, const Matrices& b);
bool same_bits(const Matrices& a, const Matrices& b);

}  // namespace ms::testing_case
