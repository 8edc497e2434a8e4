// Targets that the loss ignores: the mean is over those that it counts, in every layout, however they are spread over
// ranks and microbatches.
#include <gtest/gtest.h>

#include <limits>

#include "data/target_mask.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

constexpr int kSteps = 8;
// As in parity_test.cpp: the same sums in another order.
constexpr double kGradientTolerance = 1e-5;
constexpr double kLossTolerance = 1e-4;

// Row 0 has no target, row 1 all of them, the others some.
bool is_ignored(std::int64_t step, std::int64_t row, std::int64_t t) {
  return row == 0 || (row > 1 && (7 * t + 3 * row + step) % 5 < 3);
}

// Marks this dp rank's targets, and returns how many the whole batch counts.
std::int64_t mask_batch(const train::Plan& plan, std::int64_t step, int dp_rank, std::vector<std::int32_t>& tokens,
                        std::vector<std::int32_t>& targets) {
  const std::int64_t all = plan.settings.train.global_batch, seq = plan.settings.model.seq;
  const std::int64_t first = all / plan.mesh.batch_parts() * plan.mesh.batch_part(dp_rank);
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < all; ++row) {
    for (std::int64_t t = 0; t < seq; ++t) {
      if (!is_ignored(step, row, t)) {
        ++count;
        continue;
      }
      const auto at = static_cast<std::size_t>((row - first) * seq + t);
      if (row < first || at >= targets.size()) continue;
      targets[at] = data::ignored_target(targets[at]);
      if (t + 1 < seq) tokens[at + 1] = targets[at];  // as rows of a loader have it
    }
  }
  return count;
}

void run_masked(const train::Plan& plan, comm::World& world, tensor::Device& device, Outcome& outcome) {
  train::Engine engine(plan, world, device);
  engine.initialize(static_cast<std::uint64_t>(plan.settings.train.seed));
  std::vector<std::int32_t> tokens, targets;
  const auto next_batch = [&](std::int64_t step) {
    tokens.clear();
    targets.clear();
    if (engine.needs_input()) fill_batch(plan, step, engine.at().dp, tokens, targets);
    return mask_batch(plan, step, engine.at().dp, tokens, targets);
  };
  for (int step = 0; step < kSteps; ++step) {
    const std::int64_t num_targets = next_batch(step);
    engine.issue_step(step, plan.settings.optim.lr, tokens, targets, {}, {}, std::numeric_limits<float>::infinity(),
                      num_targets);
    const train::StepResult result = engine.finish_step(step);
    if (world.rank() == 0) outcome.losses.push_back(result.loss), outcome.norms.push_back(result.grad_norm);
    if (step == 0) collect_gradients(engine, outcome.gradients);
  }
  const auto num_targets = static_cast<double>(next_batch(999));
  const double valid = *engine.evaluate(tokens, targets, num_targets);
  if (world.rank() == 0) outcome.valid_loss = valid;
}

Outcome masked(const train::Settings& settings) {
  Outcome outcome;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    run_masked(plan, world, device, outcome);
  });
  return outcome;
}

class TargetMask : public testing::TestWithParam<std::tuple<std::string, Layout>> {};

TEST_P(TargetMask, ComputesWhatOneRankComputes) {
  const auto& [family, layout] = GetParam();
  train::Settings settings = tiny_settings(family);
  // Every token has all experts: of two with nearly the same score, sums in another order can choose the other.
  settings.model.experts_per_token = settings.model.experts;
  static std::map<std::string, Outcome> references;
  Outcome& reference = references[family];
  if (reference.losses.empty()) reference = masked(settings);
  const Outcome outcome = masked(with(settings, layout));
  const Distance gradients = distance(reference.gradients, outcome.gradients);
  EXPECT_LE(gradients.value, kGradientTolerance) << gradients.name;
  ASSERT_EQ(outcome.losses.size(), reference.losses.size());
  for (std::size_t i = 0; i < outcome.losses.size(); ++i)
    EXPECT_NEAR(outcome.losses[i], reference.losses[i], kLossTolerance) << "step " << i;
  EXPECT_NEAR(outcome.norms[0], reference.norms[0], kGradientTolerance * reference.norms[0]);
  EXPECT_NEAR(outcome.valid_loss, reference.valid_loss, kLossTolerance);
}

std::string mask_name(const testing::TestParamInfo<TargetMask::ParamType>& info) {
  return std::get<0>(info.param) + "_" + std::get<1>(info.param).name();
}

// With experts, the router's losses count every token.
INSTANTIATE_TEST_SUITE_P(Layouts, TargetMask,
                         testing::Combine(testing::Values("gpt", "llama", "moe"),
                                          testing::Values(Layout{2, 1, 1}, Layout{1, 2, 1}, Layout{1, 1, 2, 2},
                                                          Layout{4, 1, 1, 1, true, 2}, Layout{2, 2, 2})),
                         mask_name);
// A router's balance is that of a cp rank's tokens: without experts.
INSTANTIATE_TEST_SUITE_P(Context, TargetMask,
                         testing::Combine(testing::Values("gpt", "llama"),
                                          testing::Values(Layout{.cp = 2}, Layout{.dp = 2, .tp = 2, .cp = 2},
                                                          Layout{.dp = 2, .cp = 2, .cp_type = "all-to-all"})),
                         mask_name);

// The loss and the gradients are 0 then, not NaN; and all ranks know, though the middle one reads no data.
TEST(NoTarget, GivesNoGradient) {
  train::Settings settings = tiny_settings("llama");
  settings.model.layers = 3;
  settings.mesh.dp = 2;
  settings.mesh.pp = 3;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    engine.initialize(1);
    std::vector<std::int32_t> tokens, targets;
    std::optional<std::int64_t> num_targets;
    if (engine.needs_input()) {
      fill_batch(plan, 0, engine.at().dp, tokens, targets);
      data::ignore_targets(targets);
      num_targets = 0;
    }
    engine.issue_step(0, 1e-3, tokens, targets, {}, {}, std::numeric_limits<float>::infinity(), num_targets);
    const train::StepResult result = engine.finish_step(0);
    EXPECT_EQ(result.loss, 0);
    EXPECT_EQ(result.num_targets, 0);
    EXPECT_FALSE(result.mean_loss());
    EXPECT_EQ(result.grad_norm, 0);
    EXPECT_FALSE(result.skipped);
  });
}

}  // namespace
}  // namespace ms::testing_case
