// A step's first backward sets the gradients of matmuls' weights and of biases instead of adding to cleared ones: what
// was in their memory does not matter, in any layout, schedule and model, and nothing else is cleared.
#include <gtest/gtest.h>

#include <limits>

#include "training_case.h"

namespace ms::testing_case {
namespace {

using tensor::Tensor;

constexpr int kSteps = 2;

// Makes the gradients that a step is said to set NaN.
void spoil(train::Engine& engine) {
  for (const train::ChunkTensors& chunk : engine.chunks()) {
    for (std::size_t i = 0; i < chunk.specs.size(); ++i) {
      for (const nn::ParamSpec& param : chunk.specs[i].params) {
        if (param.shard.replicated || param.scattered) continue;
        const Tensor grad = chunk.spans[i].grads.slice_cols(param.offset, param.numel());
        engine.compute().submit(tensor::Fill{grad, std::numeric_limits<float>::quiet_NaN()});
      }
    }
  }
  engine.synchronize();
}

struct Result {
  std::vector<double> losses, norms;
  Matrices parameters;
};
Result run(const train::Settings& settings, bool spoils) {
  Result result;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    engine.initialize(7);
    std::vector<std::int32_t> tokens, targets;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      if (spoils && plan.sets_gradients()) spoil(engine);
      if (engine.needs_input()) fill_batch(plan, step, engine.at().dp, tokens, targets);
      engine.issue_step(step, settings.optim.lr, tokens, targets);
      const train::StepResult of = engine.finish_step(step);
      if (world.rank() != 0) continue;
      result.losses.push_back(of.loss), result.norms.push_back(of.grad_norm);
    }
    collect_parameters(engine, result.parameters);
  });
  return result;
}

void expect_unmoved(const train::Settings& settings) {
  const Result want = run(settings, false), spoiled = run(settings, true);
  EXPECT_EQ(spoiled.losses, want.losses);
  EXPECT_EQ(spoiled.norms, want.norms);
  EXPECT_TRUE(same_bits(spoiled.parameters, want.parameters));
}

TEST(SetGradients, WhateverWasThere) {
  for (const std::string family : {"gpt", "llama", "moe", "neox"}) {
    for (const bool tied : {false, true}) {
      for (const Layout& layout :
           {Layout{1, 1, 1, 1, true, 1}, Layout{2, 1, 1, 1, true, 0}, Layout{2, 1, 1, 1, true, 2},
            Layout{1, 2, 2, 2, true, 1}, Layout{2, 1, 2, 2, true, 2}}) {
        SCOPED_TRACE(family + " " + layout.name() + (tied ? " tied" : ""));
        train::Settings settings = with(tiny_settings(family), layout);
        settings.model.tied_embeddings = tied;
        settings.model.qk_norm = family == "llama";
        settings.model.parallel_block = layout.zero == 0 && family != "moe";
        expect_unmoved(settings);
      }
    }
  }
}

TEST(SetGradients, BySplitBackwardsToo) {
  for (const int zero : {1, 2}) {
    train::Settings settings = with(tiny_settings("gpt"), {2, 1, 2, 1, true, zero});
    settings.mesh.schedule = "zb-h1";
    expect_unmoved(settings);
  }
}

// Counts what a step clears, and how often it sets and adds to a gradient.
class Count final : public tensor::OpObserver {
 public:
  void ran(const tensor::Op& op, double) override {
    if (const auto* fill = std::get_if<tensor::Fill>(&op)) cleared += fill->x.numel();
    const auto* product = std::get_if<tensor::Matmul>(&op);
    if (product != nullptr && product->transpose_a) ++(product->accumulate ? added : set);
  }
  std::int64_t cleared = 0, set = 0, added = 0;
};

TEST(SetGradients, ClearsOnlyWhatIsAddedTo) {
  for (const std::string family : {"gpt", "llama"}) {
    for (const std::int64_t zero : {1, 2}) {
      SCOPED_TRACE(testing::Message() << family << " zero " << zero);
      train::Settings settings = tiny_settings(family);
      settings.model.tied_embeddings = false;
      settings.optim.zero = zero;
      on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
        train::Engine engine(plan, world, device);
        engine.initialize(7);
        std::vector<std::int32_t> tokens, targets;
        fill_batch(plan, 0, 0, tokens, targets);
        engine.synchronize();
        Count count;
        device.set_observer(&count);
        engine.issue_step(0, settings.optim.lr, tokens, targets);
        engine.finish_step(0);
        engine.synchronize();
        device.set_observer(nullptr);
        const nn::ModelConfig& model = settings.model;
        ASSERT_GT(plan.microbatches, 1);
        const std::int64_t weights = 4 * model.layers + 1, backwards = zero == 2 ? plan.microbatches : 1;
        EXPECT_EQ(count.set, weights * backwards);
        EXPECT_EQ(count.added, weights * (plan.microbatches - backwards));
        // Norms, biases that all ranks hold, positions, the embedding; and the sums of the step.
        const std::int64_t vectors = model.layers * model.hidden * (family == "gpt" ? 6 : 2) + 2 * model.hidden;
        const std::int64_t most = vectors + (model.seq + model.vocab + 64) * model.hidden + 64;
        EXPECT_LE(count.cleared, most * (zero == 2 ? plan.microbatches + 1 : 1));
        EXPECT_GE(count.cleared, model.vocab * model.hidden);
      });
    }
  }
}

}  // namespace
}  // namespace ms::testing_case
