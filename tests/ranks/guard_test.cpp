// Steps that the guard leaves out: in every layout, parameters and moments are those of a run without such a step.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

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

// Training with replays after every step, or without any.
struct Replays {
  std::vector<double> losses;
  std::vector<std::vector<std::uint64_t>> found;  // by step
};
// `flipped`: the rank whose last replay computes wrongly; -1: none does.
Replays train_with_replays(train::Settings settings, bool replays, int flipped = -1) {
  settings.guard.replay_every = replays ? 1 : 0;
  Replays result;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train::Engine engine(plan, world, device);
    engine.initialize(7);
    std::vector<std::int32_t> tokens, targets;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      if (engine.needs_input()) fill_batch(plan, step, engine.at().dp, tokens, targets);
      engine.prefetch();
      engine.issue_step(step, settings.optim.lr, tokens, targets);
      const double loss = engine.finish_step(step).loss;
      if (world.rank() == 0) result.losses.push_back(loss);
      if (!replays) continue;
      if (step + 1 == kSteps && world.rank() == flipped) engine.flip_bit();
      const std::vector<std::uint64_t> bits = engine.replay(static_cast<int>(step % plan.mesh.dp));
      if (world.rank() == 0) result.found.push_back(bits);
    }
  });
  return result;
}

struct ReplayCase {
  std::string name;
  Layout layout;
  std::string family = "llama", schedule = "1f1b", dtype = "fp32", main_grads = "fp32", recompute = "none";
  bool tied = false, fp8 = false;
};
void PrintTo(const ReplayCase& the_case, std::ostream* out) { *out << the_case.name; }

train::Settings settings_of(const ReplayCase& the_case) {
  train::Settings settings = with(tiny_settings(the_case.family), the_case.layout);
  settings.mesh.schedule = the_case.schedule;
  settings.model.tied_embeddings = the_case.tied;
  settings.train.dtype = the_case.dtype;
  settings.train.fp8 = the_case.fp8;
  settings.train.recompute = the_case.recompute;
  settings.optim.main_grads_dtype = the_case.main_grads;
  return settings;
}

class Replayed : public testing::TestWithParam<ReplayCase> {};

TEST_P(Replayed, ChangesNoBitAndAccusesNobody) {
  const train::Settings settings = settings_of(GetParam());
  const Replays with_replays = train_with_replays(settings, true);
  ASSERT_EQ(std::ssize(with_replays.found), kSteps);
  for (const auto& bits : with_replays.found) EXPECT_TRUE(bits.empty());
  EXPECT_EQ(with_replays.losses, train_with_replays(settings, false).losses);
}

// The bit is one that no loss shows: only the backward reads it.
TEST_P(Replayed, NamesWhoComputesTheBackwardWrongly) {
  const train::Settings settings = settings_of(GetParam());
  const int ranks = static_cast<int>(settings.mesh.dp * settings.mesh.pp * settings.mesh.tp);
  const mesh::Mesh mesh = mesh::make_mesh(settings.mesh.dp, settings.mesh.pp, settings.mesh.tp, ranks);
  for (const int rank : {0, ranks - 1}) {
    SCOPED_TRACE(testing::Message() << "rank " << rank);
    const auto found = train_with_replays(settings, true, rank).found;
    ASSERT_EQ(std::ssize(found), kSteps);
    for (std::size_t step = 0; step + 1 < found.size(); ++step) EXPECT_TRUE(found[step].empty()) << "step " << step;
    ASSERT_EQ(std::ssize(found.back()), settings.mesh.dp);
    const std::vector<int> wrong = train::in_the_minority(found.back());
    if (settings.mesh.dp == 2) {
      EXPECT_TRUE(wrong.empty()) << "one of two";
    } else {
      EXPECT_EQ(wrong, (std::vector<int>{mesh.coord(rank).dp}));
    }
  }
}

// ZeRO 2 shares a gradient buffer among chunks; a split backward and tied embeddings have ways of their own.
INSTANTIATE_TEST_SUITE_P(
    All, Replayed,
    testing::Values(ReplayCase{.name = "zero0", .layout = {4, 1, 1, 1, true, 0}},
                    ReplayCase{.name = "two", .layout = {2, 2, 1, 1, true, 1}},
                    ReplayCase{.name = "zero2", .layout = {4, 1, 1, 1, true, 2}, .recompute = "full"},
                    ReplayCase{.name = "pipeline", .layout = {4, 1, 2, 1, true, 1}, .family = "gpt", .tied = true},
                    ReplayCase{.name = "chunks", .layout = {4, 1, 2, 2, true, 2}},
                    ReplayCase{.name = "halves", .layout = {4, 1, 2, 1, true, 2}, .schedule = "zb-h1"},
                    ReplayCase{.name = "gpipe", .layout = {2, 1, 4, 1, true, 1}, .schedule = "gpipe"},
                    ReplayCase{.name = "tensor", .layout = {4, 2, 1, 1, true, 1}, .recompute = "selective"},
                    ReplayCase{.name = "bf16", .layout = {4, 1, 1, 1, true, 2}, .dtype = "bf16", .main_grads = "bf16"},
                    ReplayCase{.name = "fp8", .layout = {4, 1, 1, 1, true, 1}, .dtype = "bf16", .fp8 = true}),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace ms::testing_case
