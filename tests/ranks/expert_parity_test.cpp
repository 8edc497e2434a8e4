// Parity of mixtures of experts beyond the layouts of parity_test.cpp: long runs, capacities, balance and loads, over
// ranks that share the experts in every way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "training_case.h"

namespace ms::testing_case {
namespace {

constexpr int kTwentySteps = 20;
// The tolerances of parity_test.cpp, for its reasons.
constexpr double kOfExperts = 1e-5, kLossOfExperts = 1e-4;

// Thirty steps of experts in every way that they are divided, exchanged, overlapped and recomputed.
TEST(Experts, TrainAsOnOneRankForThirtySteps) {
  constexpr int kThirty = 30;
  // Sums in another order, as above, which Adam carries on; a router's choice that is close may go the other way.
  constexpr double kTolerance = 1e-6;
  struct Row {
    Layout layout;
    bool overlaps;
    const char* recompute;
    double capacity;  // with room for what comes
  };
  const Row rows[] = {{{2, 1, 1, 1, true, 1, 1}, true, "none", 0},
                      {{1, 2, 1, 1, true, 1, 1}, true, "none", 0},
                      {{1, 1, 2, 1, true, 1, 1}, true, "full", 0},
                      {{2, 2, 1, 1, true, 1, 1}, false, "selective", 0},
                      {{2, 1, 1, 1, true, 1, 2}, true, "none", 0},
                      {{4, 1, 1, 1, true, 1, 2}, true, "none", 1.99},
                      {{4, 1, 1, 1, true, 2, 4}, true, "selective", 0},
                      {{4, 1, 1, 1, true, 0, 4}, false, "none", 3.99},
                      {{2, 2, 1, 1, true, 1, 2}, true, "none", 0},
                      {{2, 2, 1, 1, false, 1, 2}, true, "full", 1.99},
                      {{2, 1, 2, 2, true, 1, 2}, true, "selective", 0},
                      {{2, 2, 2, 1, true, 1, 2}, false, "none", 0},
                      {{2, 4, 1, 1, true, 1, 2}, true, "selective", 0},
                      {{4, 2, 1, 1, false, 1, 4}, true, "none", 3.99},
                      {{2, 1, 1, 1, true, 1, 2, true}, true, "none", 0},
                      {{4, 1, 1, 1, true, 1, 4, true}, true, "full", 0},
                      {{2, 2, 2, 1, true, 2, 2, true}, false, "none", 0},
                      {folded({2, 2, 1, 1, true, 1, 4}), true, "none", 3.99},
                      {folded({1, 2, 2, 1, true, 2, 2}), false, "full", 0},
                      {folded({2, 2, 1, 1, false, 0, 2}), true, "selective", 1.99},
                      {folded({2, 2, 1, 1, true, 1, 1}), true, "none", 0},
                      {folded({2, 4, 1, 1, true, 1, 8}), true, "selective", 0},
                      {folded({2, 2, 2, 1, false, 1, 4, true}), true, "full", 0}};
  train::Settings settings = tiny_settings("dots");
  settings.model.layers = 4, settings.model.dense_layers = "0";
  settings.optim.lr = 1e-3;
  const Outcome one = run_threads(settings, kThirty);
  for (const Row& row : rows) {
    train::Settings other = with(settings, row.layout);
    other.overlap.ep = other.overlap.dp = other.overlap.pp = row.overlaps;
    other.train.recompute = row.recompute, other.train.moe_capacity = row.capacity;
    const Outcome outcome = run_threads(other, kThirty);
    ASSERT_EQ(outcome.losses.size(), one.losses.size());
    double most = 0;
    for (std::size_t i = 0; i < one.losses.size(); ++i)
      most = std::max(most, std::abs(outcome.losses[i] - one.losses[i]));
    EXPECT_LE(most, kTolerance) << row.layout.name();
  }
}

// With room for all that comes the bits are those of no limit; with less it still learns, and overlap changes no bit.
TEST(Capacity, DropsOnlyWhatHasNoRoom) {
  train::Settings settings = with(tiny_settings("moe"), {4, 1, 1, 1, true, 1, 4});
  const Outcome all = run_threads(settings, 5);
  settings.train.moe_capacity = 3.99;
  const Outcome roomy = run_threads(settings, 5);
  EXPECT_EQ(all.losses, roomy.losses);
  EXPECT_TRUE(same_bits(all.parameters, roomy.parameters));
  settings.train.moe_capacity = 1;
  const Outcome tight = run_threads(settings, kTwentySteps);
  EXPECT_NE(all.losses[0], tight.losses[0]) << "nothing is dropped";
  EXPECT_LT(tight.losses.back(), tight.losses.front() - 0.2);
  settings.overlap.ep = false;
  const Outcome waited = run_threads(settings, kTwentySteps);
  EXPECT_EQ(tight.losses, waited.losses);
  EXPECT_TRUE(same_bits(tight.parameters, waited.parameters));
}

// Without a shared expert the sums of the experts are all that a layer adds: they need no reduction over tp.
TEST(Experts, WithoutASharedOneTrainAsOnOneRank) {
  train::Settings settings = tiny_settings("mixtral");
  settings.model.layers = 4, settings.optim.lr = 1e-3;
  const Outcome one = run_threads(settings, kTwentySteps);
  for (const Layout& layout :
       {Layout{2, 2, 1, 1, true, 1, 1}, Layout{2, 2, 1, 1, true, 1, 2}, Layout{2, 2, 1, 1, false, 1, 2},
        Layout{2, 4, 1, 1, true, 1, 2}, Layout{2, 4, 1, 1, false, 1, 2}, Layout{4, 2, 2, 1, true, 2, 4},
        Layout{4, 4, 1, 1, true, 1, 4}, Layout{4, 4, 1, 1, false, 0, 4}, folded({1, 2, 1, 1, true, 1, 1}),
        folded({2, 2, 1, 1, true, 1, 4}), folded({2, 2, 1, 1, false, 2, 2}), folded({2, 4, 1, 1, false, 0, 4}),
        folded({2, 2, 1, 1, true, 1, 4, true}), folded({1, 4, 2, 1, false, 1, 2, true})}) {
    const Outcome outcome = run_threads(with(settings, layout), kTwentySteps);
    const Distance gradients = distance(one.gradients, outcome.gradients);
    EXPECT_LE(gradients.value, kOfExperts) << layout.name() << " " << gradients.name;
    for (std::size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(one.losses[i], outcome.losses[i], 1e-5) << layout.name() << " step " << i;
  }
}

// The parts of the tokens that are balanced end within a rank's share: three sequences, cut in two and in four.
TEST(Experts, BalanceSequencesThatRanksShare) {
  train::Settings settings = tiny_settings("moe");
  settings.train.moe_aux_scope = "sequence", settings.train.moe_aux_loss = 0.5;
  settings.train.microbatch = 3, settings.train.global_batch = 12;
  const Outcome one = run_threads(settings, 5);
  for (const Layout& layout :
       {Layout{2, 2, 1, 1, true, 1, 2}, Layout{2, 4, 1, 1, true, 1, 2}, Layout{4, 2, 1, 1, false, 1, 4},
        folded({1, 2, 1, 1, true, 1, 1}), folded({2, 4, 1, 1, true, 1, 8}), folded({2, 4, 1, 1, false, 1, 2, true}),
        folded({2, 2, 1, 1, true, 1, 4, true})}) {
    const Outcome outcome = run_threads(with(settings, layout), 5);
    const Distance gradients = distance(one.gradients, outcome.gradients);
    EXPECT_LE(gradients.value, kOfExperts) << layout.name() << " " << gradients.name;
    for (std::size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_NEAR(one.losses[i], outcome.losses[i], kLossOfExperts) << layout.name();
  }
}

// The loads of experts that a step reports, as every rank has them: of all tokens, and the share that was dropped.
TEST(Capacity, IsReportedForRanksThatShareTheRouting) {
  train::Settings settings = tiny_settings("moe");
  settings.metrics.expert_load_every = 1;
  const double chosen = static_cast<double>(settings.train.global_batch * settings.model.seq * settings.model.layers *
                                            settings.model.experts_per_token);
  const auto expect = [&](const Layout& layout, double capacity, const testing::Matcher<double>& dropped) {
    settings.train.moe_capacity = capacity;
    on_threads(with(settings, layout), [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
      train::Engine engine(plan, world, device);
      engine.initialize(1);
      std::vector<std::int32_t> tokens, targets;
      fill_batch(plan, 0, engine.at().dp, tokens, targets);
      engine.issue_step(0, 1e-3, tokens, targets, {}, {});
      const train::StepResult result = engine.finish_step(0);
      const std::vector<double>& loads = result.expert_loads;
      EXPECT_EQ(std::accumulate(loads.begin(), loads.end(), 0.0), chosen) << layout.name();
      EXPECT_THAT(result.dropped, dropped) << layout.name();
    });
  };
  for (const bool sequence_parallel : {true, false}) {
    expect({4, 2, 1, 1, sequence_parallel, 1, 4}, 3.99, testing::DoubleEq(0));
    expect({4, 2, 1, 1, sequence_parallel, 1, 4}, 1, testing::AllOf(testing::Gt(0.01), testing::Lt(0.5)));
    expect({2, 4, 1, 1, sequence_parallel, 1, 2}, 1.99, testing::DoubleEq(0));
    expect(folded({2, 2, 1, 1, sequence_parallel, 1, 4}), 3.99, testing::DoubleEq(0));
    expect(folded({2, 2, 1, 1, sequence_parallel, 1, 4}), 1, testing::AllOf(testing::Gt(0.01), testing::Lt(0.5)));
    expect(folded({2, 2, 1, 1, sequence_parallel, 1, 4, true}), 0, testing::DoubleEq(0));
  }
}

}  // namespace
}  // namespace ms::testing_case
