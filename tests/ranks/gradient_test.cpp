// Gradients of the whole model, parameter by parameter, against finite differences of its loss: every layer's backward,
// the embedding and the head, for both families, in f32. Two directions each: along the gradient (checks its length)
// and a random one (checks that no part is missing).
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/rng.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

// Central differences with steps that change the loss in its fourth digit or later: the third derivative leaves about a
// hundredth, the rounding of f32 losses less.
constexpr double kTolerance = 0.02;

std::vector<float> random_direction(const std::string& name, std::size_t n) {
  std::vector<float> v(n);
  double norm = 0;
  for (std::size_t i = 0; i < n; ++i) {
    v[i] = normal(3, rng_key(name), i);
    norm += double{v[i]} * double{v[i]};
  }
  for (float& x : v) x = static_cast<float>(x / std::sqrt(norm));
  return v;
}

double norm_of(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v) sum += double{x} * double{x};
  return std::sqrt(sum);
}

class FiniteDifferences : public testing::TestWithParam<std::tuple<std::string, bool>> {};

TEST_P(FiniteDifferences, AgreeWithEveryParametersGradient) {
  train::Settings settings = tiny_settings(std::get<0>(GetParam()));
  settings.model.tied_embeddings = std::get<1>(GetParam());
  settings.model.layers = 2;
  settings.model.patch_size = std::get<0>(GetParam()) == "moe" ? 0 : 2;
  settings.model.heads = 4;
  settings.model.kv_heads = std::get<0>(GetParam()) == "gpt" ? 0 : 2;
  settings.optim.clip = 0;
  settings.model.experts_per_token = settings.model.experts;    // a router's choice jumps
  settings.train.moe_aux_loss = settings.train.moe_z_loss = 0;  // no part of the loss that is evaluated
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    engine.initialize(1);
    Matrices start, gradients;
    collect_parameters(engine, start);
    std::vector<std::int32_t> tokens, targets;
    fill_batch(plan, 0, 0, tokens, targets);
    const std::vector<std::int8_t> patches = batch_patches(plan, 0);
    auto loss_at = [&](const Matrices& parameters) {
      load_parameters(engine, parameters);
      return *engine.evaluate(tokens, targets, static_cast<double>(plan.tokens_per_step()), {}, false, patches);
    };
    engine.issue_step(0, 0.0, tokens, targets, {}, {}, std::numeric_limits<float>::infinity(), {}, patches);
    engine.finish_step(0);
    collect_gradients(engine, gradients);

    for (const auto& [name, gradient] : gradients) {
      const double length = norm_of(gradient.values);
      ASSERT_GT(length, 0) << name;
      if (name.ends_with("attn.k.bias")) continue;  // zero in theory: softmax ignores a shift of all scores
      std::vector<float> along = gradient.values;
      for (float& x : along) x = static_cast<float>(x / length);
      for (const std::vector<float>& direction : {along, random_direction(name, along.size())}) {
        double expected = 0;
        for (std::size_t i = 0; i < direction.size(); ++i)
          expected += double{gradient.values[i]} * double{direction[i]};
        const double step = 0.02 * std::max(0.5, norm_of(start.at(name).values));
        Matrices moved = start;
        auto move = [&, &name = name](double by) {
          for (std::size_t i = 0; i < direction.size(); ++i) {
            moved[name].values[i] = static_cast<float>(start.at(name).values[i] + by * direction[i]);
          }
          return loss_at(moved);
        };
        const double measured = (move(step) - move(-step)) / (2 * step);
        // Against the length too: a random direction may be nearly orthogonal to the gradient.
        const double scale = std::max(std::abs(expected), length / std::sqrt(static_cast<double>(direction.size())));
        EXPECT_NEAR(measured, expected, kTolerance * scale) << name;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Families, FiniteDifferences,
                         testing::Combine(testing::Values("gpt", "llama", "moe"), testing::Values(false, true)));

}  // namespace
}  // namespace ms::testing_case
