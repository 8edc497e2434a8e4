// Images in the model: losses and gradients are those of one rank in every layout, the projection of patches included.
#include <gtest/gtest.h>

#include "training_case.h"

namespace ms::testing_case {
namespace {

constexpr int kSteps = 4;
// As in parity_test.cpp: the same sums in another order.
constexpr double kGradientTolerance = 1e-5, kLossTolerance = 1e-4;

train::Settings with_images(const std::string& family) {
  train::Settings settings = tiny_settings(family);
  settings.model.patch_size = 3;  // 27 numbers: a whole of no vector unit
  return settings;
}

class Patches : public testing::TestWithParam<std::tuple<std::string, Layout>> {};

TEST_P(Patches, ComputeWhatOneRankComputes) {
  const auto& [family, layout] = GetParam();
  const train::Settings settings = with_images(family);
  static std::map<std::string, Outcome> references;
  Outcome& reference = references[family];
  if (reference.losses.empty()) reference = run_threads(settings, kSteps);
  const Outcome outcome = run_threads(with(settings, layout), kSteps);
  ASSERT_TRUE(outcome.gradients.contains("embed.patches.weight"));
  const Distance gradients = distance(reference.gradients, outcome.gradients);
  EXPECT_LE(gradients.value, kGradientTolerance) << gradients.name;
  ASSERT_EQ(outcome.losses.size(), reference.losses.size());
  for (std::size_t i = 0; i < outcome.losses.size(); ++i)
    EXPECT_NEAR(outcome.losses[i], reference.losses[i], kLossTolerance) << "step " << i;
  EXPECT_NEAR(outcome.valid_loss, reference.valid_loss, kLossTolerance);
}

std::string patches_name(const testing::TestParamInfo<Patches::ParamType>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param).name();
}

INSTANTIATE_TEST_SUITE_P(Layouts, Patches,
                         testing::Combine(testing::Values("gpt", "llama"),
                                          testing::Values(Layout{.dp = 2}, Layout{.dp = 4, .zero = 2}, Layout{.tp = 2},
                                                          Layout{.tp = 2, .sequence_parallel = false},
                                                          Layout{.pp = 2, .chunks = 2},
                                                          Layout{.dp = 2, .tp = 2, .pp = 2}, Layout{.cp = 2},
                                                          Layout{.tp = 2, .cp = 2, .cp_type = "all-to-all"})),
                         patches_name);

// Another image is another loss; and bf16 has each colour exactly, so that it trains, too.
TEST(PatchesOf, AModelChangeItsLoss) {
  train::Settings settings = with_images("llama");
  const double with_patches = run_threads(settings, 1).losses[0];
  settings.train.dtype = "bf16";
  EXPECT_NEAR(run_threads(settings, 1).losses[0], with_patches, 0.05);
  settings.model.patch_size = 0;
  settings.train.dtype = "fp32";
  EXPECT_GT(std::abs(run_threads(settings, 1).losses[0] - with_patches), 1e-3);
}

}  // namespace
}  // namespace ms::testing_case
