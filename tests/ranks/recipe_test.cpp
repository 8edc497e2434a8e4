// What a recipe of training may ask for beside the model: groups of parameters, z-loss and a batch that grows, in every
// layout.
#include <gtest/gtest.h>

#include "training_case.h"

namespace ms::testing_case {
namespace {

constexpr int kSteps = 10;
constexpr double kLossTolerance = 1e-4;  // of the parity tests

train::Settings recipe(const Layout& layout) {
  train::Settings settings = with(tiny_settings("gpt"), layout);
  settings.optim.schedule = "linear";
  settings.optim.warmup_steps = 2;
  settings.optim.groups = {"embed.* lr=0.5 weight_decay=0", "layers.3.* lr=0.25", "*.bias weight_decay=0.2"};
  settings.train.z_loss = 0.01;
  settings.train.rampup_start = settings.train.rampup_increment = 4;
  settings.train.rampup_samples = 12;  // three steps of 4 sequences, then of 8
  return settings;
}

class Recipe : public testing::TestWithParam<Layout> {};

TEST_P(Recipe, ComputesWhatOneRankComputes) {
  static const Outcome kReference = run_threads(recipe({1, 1, 1, 1, true, 1}), kSteps);
  const Outcome outcome = run_threads(recipe(GetParam()), kSteps);
  ASSERT_EQ(outcome.losses.size(), kReference.losses.size());
  for (std::size_t i = 0; i < outcome.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], kReference.losses[i], kLossTolerance) << "step " << i;
  }
  EXPECT_LT(distance(outcome.gradients, kReference.gradients).value, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(All, Recipe,
                         testing::Values(Layout{2, 1, 1, 1, true, 2}, Layout{1, 4, 1, 1, true, 1},
                                         Layout{1, 1, 4, 2, true, 1}, Layout{2, 2, 2, 2, true, 1}),
                         [](const auto& row) { return row.param.name(); });

Outcome with_groups(const std::vector<std::string>& groups, double lr, double weight_decay) {
  train::Settings settings = with(tiny_settings("gpt"), {2, 1, 1, 1, true, 1});
  settings.optim.groups = groups;
  settings.optim.lr = lr;
  settings.optim.weight_decay = weight_decay;
  return run_threads(settings, 3);
}

TEST(RecipeGroups, AGroupOfAllIsTheSetting) {
  const Outcome halved = with_groups({"* lr=0.5"}, 4e-3, 0.1), plain = with_groups({}, 2e-3, 0.1);
  EXPECT_TRUE(same_bits(halved.parameters, plain.parameters));
  const std::vector<std::string> matrices{"*norm* weight_decay=0", "*.weight weight_decay=0.3"};
  const Outcome decayed = with_groups(matrices, 2e-3, 0), set = with_groups({}, 2e-3, 0.3);
  EXPECT_TRUE(same_bits(decayed.parameters, set.parameters));
  EXPECT_FALSE(same_bits(decayed.parameters, plain.parameters));
}

TEST(RecipeGroups, ARateOf0LeavesItsParametersAlone) {
  const Outcome none = with_groups({"* lr=0"}, 2e-3, 0.1), some = with_groups({"embed.* lr=0"}, 2e-3, 0.1);
  for (const auto& [name, matrix] : some.parameters) {
    const bool same = matrix.values == none.parameters.at(name).values;
    EXPECT_EQ(same, name.starts_with("embed.")) << name;
  }
}

// The same loss from the same weights, another gradient.
TEST(RecipeZLoss, IsInTheGradientsOnly) {
  train::Settings settings = with(tiny_settings("llama"), {1, 2, 2, 1, true, 1});
  const Outcome without = run_threads(settings, 1);
  settings.train.z_loss = 0.1;
  const Outcome z = run_threads(settings, 1);
  EXPECT_EQ(z.losses, without.losses);
  EXPECT_GT(distance(z.gradients, without.gradients).value, 1e-3);
}

}  // namespace
}  // namespace ms::testing_case
