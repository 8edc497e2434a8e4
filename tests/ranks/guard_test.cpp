// Steps that the guard leaves out: in every layout, parameters and moments are those of a run without such a step.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "train/run/replay.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

constexpr float kNoLimit = std::numeric_limits<float>::infinity();
constexpr std::int64_t kSteps = 4, kBad = 1;

const std::vector<Layout> kLayouts = {
    {1, 1, 1, 1, true, 1}, {2, 1, 1, 1, true, 0}, {2, 1, 1, 1, true, 1}, {2, 1, 1, 1, true, 2},
    {1, 2, 1, 1, true, 1}, {1, 1, 2, 1, true, 1}, {2, 2, 2, 2, true, 2},
};

// What happens to step kBad.
enum class Bad { trained, never_issued, spoiled, above_limit };

struct End {
  Matrices parameters, first_moments, second_moments;
  std::vector<double> losses;
  int skipped = 0;  // ranks that report step kBad as skipped
};

End run(const train::Settings& settings, Bad bad, int spoiled_rank = 0) {
  End end;
  std::mutex mutex;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    engine.initialize(7);
    std::vector<std::int32_t> tokens, targets;
    std::vector<double> losses;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      if (step == kBad && bad == Bad::never_issued) continue;
      if (engine.needs_input()) fill_batch(plan, step, engine.at().dp, tokens, targets);
      if (step == kBad && bad == Bad::spoiled && world.rank() == spoiled_rank) engine.spoil_gradients();
      const float limit = step == kBad && bad == Bad::above_limit ? 1e-3F : kNoLimit;
      engine.issue_step(step, settings.optim.lr, tokens, targets, {}, {}, limit);
      const train::StepResult result = engine.finish_step(step);
      EXPECT_EQ(result.skipped, step == kBad && bad != Bad::trained) << "step " << step;
      EXPECT_EQ(std::isfinite(result.grad_norm), !(step == kBad && bad == Bad::spoiled)) << "step " << step;
      const std::lock_guard lock(mutex);
      if (step == kBad && result.skipped) ++end.skipped;
      if (step != kBad) losses.push_back(result.loss);
    }
    collect_parameters(engine, end.parameters);
    collect_moments(engine, end.first_moments, end.second_moments);
    const std::lock_guard lock(mutex);
    if (world.rank() == 0) end.losses = losses;
  });
  return end;
}

void expect_same(const End& a, const End& b) {
  EXPECT_TRUE(same_bits(a.parameters, b.parameters));
  EXPECT_TRUE(same_bits(a.first_moments, b.first_moments));
  EXPECT_TRUE(same_bits(a.second_moments, b.second_moments));
  EXPECT_EQ(a.losses, b.losses);
}

class Guarded : public testing::TestWithParam<Layout> {};

TEST_P(Guarded, StepsThatAreLeftOutLeaveNoTrace) {
  const train::Settings settings = with(tiny_settings("llama"), GetParam());
  const int ranks = static_cast<int>(settings.mesh.dp * settings.mesh.pp * settings.mesh.tp);
  const End without = run(settings, Bad::never_issued);
  ASSERT_FALSE(same_bits(without.parameters, run(settings, Bad::trained).parameters));
  for (const int rank : std::set{0, ranks - 1}) {
    SCOPED_TRACE(testing::Message() << "NaN on rank " << rank);
    const End spoiled = run(settings, Bad::spoiled, rank);
    EXPECT_EQ(spoiled.skipped, ranks);
    expect_same(spoiled, without);
  }
  const End above = run(settings, Bad::above_limit);
  EXPECT_EQ(above.skipped, ranks);
  expect_same(above, without);
}

std::string case_name(const testing::TestParamInfo<Layout>& info) { return info.param.name(); }
INSTANTIATE_TEST_SUITE_P(All, Guarded, testing::ValuesIn(kLayouts), case_name);

// The forward of a dp rank again on all of them, after a step and between others: what rank 0 finds of it. `flipped`
// computes wrongly once, before the last of them; -1: none does.
std::vector<std::vector<std::uint64_t>> replays(const train::Settings& settings, int flipped) {
  std::vector<std::vector<std::uint64_t>> found;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    engine.initialize(7);
    std::vector<std::int32_t> tokens, targets;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      if (engine.needs_input()) fill_batch(plan, step, engine.at().dp, tokens, targets);
      engine.issue_step(step, settings.optim.lr, tokens, targets);
      engine.finish_step(step);
      if (step + 1 == kSteps && world.rank() == flipped) engine.flip_bit();
      const std::vector<std::uint64_t> bits = engine.replay(static_cast<int>(step % plan.mesh.dp));
      if (world.rank() == 0) found.push_back(bits);
    }
  });
  return found;
}

class Replayed : public testing::TestWithParam<Layout> {};

TEST_P(Replayed, DpRanksHaveTheSameBitsUnlessOneComputesWrongly) {
  const train::Settings settings = with(tiny_settings("llama"), GetParam());
  for (const auto& bits : replays(settings, -1)) EXPECT_TRUE(bits.empty());
  const int ranks = static_cast<int>(settings.mesh.dp * settings.mesh.pp * settings.mesh.tp);
  for (const int rank : {0, ranks - 1}) {
    const auto found = replays(settings, rank);
    for (std::int64_t step = 0; step + 1 < kSteps; ++step) EXPECT_TRUE(found[static_cast<std::size_t>(step)].empty());
    const std::vector<int> wrong = train::in_the_minority(found.back());
    const mesh::Mesh mesh = mesh::make_mesh(settings.mesh.dp, settings.mesh.pp, settings.mesh.tp, ranks);
    if (settings.mesh.dp == 2) {
      EXPECT_EQ(found.back().size(), 2U);
      EXPECT_TRUE(wrong.empty()) << "one of two";
    } else {
      EXPECT_EQ(wrong, (std::vector<int>{mesh.coord(rank).dp}));
    }
  }
}

// Training is what it is without replays between its steps.
TEST(ReplayedRun, ChangesNoBit) {
  const train::Settings settings = with(tiny_settings("llama"), {2, 2, 2, 2, true, 2});
  const auto losses = [&](bool replay) {
    std::vector<double> all;
    on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
      train::Engine engine(plan, world, device);
      engine.initialize(7);
      std::vector<std::int32_t> tokens, targets;
      for (std::int64_t step = 0; step < kSteps; ++step) {
        if (engine.needs_input()) fill_batch(plan, step, engine.at().dp, tokens, targets);
        engine.issue_step(step, settings.optim.lr, tokens, targets);
        const train::StepResult result = engine.finish_step(step);
        if (replay) { EXPECT_TRUE(engine.replay(1).empty()); }
        if (world.rank() == 0) all.push_back(result.loss);
      }
    });
    return all;
  };
  EXPECT_EQ(losses(true), losses(false));
}

INSTANTIATE_TEST_SUITE_P(All, Replayed,
                         testing::Values(Layout{2, 1, 1, 1, true, 1}, Layout{4, 1, 1, 1, true, 2},
                                         Layout{4, 1, 2, 1, true, 1}, Layout{2, 1, 2, 2, true, 1}),
                         case_name);

}  // namespace
}  // namespace ms::testing_case
