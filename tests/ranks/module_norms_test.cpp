// Gradient norms by module in every layout: those of the whole gradients, and together the norm that clips.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <numeric>

#include "training_case.h"

namespace ms::testing_case {
namespace {

const std::vector<Layout> kLayouts = {
    {1, 1, 1, 1, true, 1},  {2, 1, 1, 1, true, 0}, {2, 1, 1, 1, true, 2}, {1, 4, 1, 1, true, 1},
    {1, 2, 1, 1, false, 1}, {2, 2, 2, 1, true, 0}, {2, 2, 2, 2, true, 1}, {2, 2, 2, 1, false, 2},
};

class Modules : public testing::TestWithParam<std::tuple<bool, Layout>> {};

TEST_P(Modules, NormsAreThoseOfTheGradients) {
  const auto& [tied, layout] = GetParam();
  train::Settings settings = with(tiny_settings("gpt"), layout);
  settings.model.tied_embeddings = tied;
  settings.metrics.grad_norms_every = 2;
  Matrices gradients;
  train::StepResult result;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    engine.initialize(7);
    std::vector<std::int32_t> tokens, targets;
    for (std::int64_t step = 0; step < 2; ++step) {
      if (engine.needs_input()) fill_batch(plan, step, engine.at().dp, tokens, targets);
      engine.issue_step(step, settings.optim.lr, tokens, targets);
      const train::StepResult finished = engine.finish_step(step);
      EXPECT_EQ(finished.module_norms.empty(), step == 0) << "not as often as metrics.grad_norms_every says";
      if (world.rank() == world.size() - 1) result = finished;  // every rank has them
    }
    collect_gradients(engine, gradients);
  });
  const std::vector<std::string> names = train::module_names(settings.model);
  ASSERT_EQ(result.module_norms.size(), names.size());
  std::map<std::string, double, std::less<>> want;
  for (const auto& [name, gradient] : gradients) {
    double& squares = want[std::string(train::module_of(name))];
    for (const float x : gradient.values) squares += double{x} * double{x};
  }
  double all = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    ASSERT_GT(want.at(names[i]), 0) << names[i];
    // The same squares of the same f32 gradients, summed in f64 in another order.
    EXPECT_NEAR(result.module_norms[i] / std::sqrt(want.at(names[i])), 1, 1e-12) << names[i];
    all += result.module_norms[i] * result.module_norms[i];
  }
  EXPECT_NEAR(std::sqrt(all) / result.grad_norm, 1, 1e-6);  // which is an f32
}

// The tokens of every expert since the last report, over two steps, in every layout those of one rank.
TEST(ExpertLoads, AreThoseOfOneRank) {
  std::vector<double> want;
  std::vector<Layout> layouts = kLayouts;
  layouts.push_back({4, 1, 1, 1, true, 1, 2});
  layouts.push_back({2, 2, 2, 2, true, 2, 2});
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(layout.name());
    train::Settings settings = with(tiny_settings("dots"), layout);
    settings.metrics.expert_load_every = 2;
    settings.train.moe_bias_rate = 0;  // the same tokens choose the same experts in every step
    std::vector<double> loads;
    on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
      train::Engine engine(plan, world, device);
      engine.initialize(7);
      std::vector<std::int32_t> tokens, targets;
      for (std::int64_t step = 0; step < 4; ++step) {
        if (engine.needs_input()) fill_batch(plan, step % 2, engine.at().dp, tokens, targets);
        engine.issue_step(step, 0, tokens, targets);
        const train::StepResult finished = engine.finish_step(step);
        EXPECT_EQ(finished.expert_loads.empty(), step % 2 == 0);
        if (world.rank() != world.size() - 1 || step % 2 == 0) continue;  // every rank has them
        if (step == 3) { EXPECT_EQ(finished.expert_loads, loads) << "not cleared"; }
        loads = finished.expert_loads;
      }
    });
    const std::int64_t layers = settings.model.layers, experts = settings.model.experts;
    ASSERT_EQ(std::ssize(loads), layers * experts);
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      const auto begin = loads.begin() + layer * experts;
      const double passed = settings.model.has_experts(layer) ? 2.0 * 8 * 16 * 2 : 0;
      EXPECT_EQ(std::accumulate(begin, begin + experts, 0.0), passed) << "2 steps of 8 x 16 tokens, 2 each";
    }
    if (want.empty()) want = loads;
    EXPECT_EQ(loads, want);
  }
}

std::string case_name(const testing::TestParamInfo<Modules::ParamType>& info) {
  return std::string(std::get<0>(info.param) ? "tied_" : "untied_") + std::get<1>(info.param).name();
}
INSTANTIATE_TEST_SUITE_P(All, Modules, testing::Combine(testing::Bool(), testing::ValuesIn(kLayouts)), case_name);

}  // namespace
}  // namespace ms::testing_case
