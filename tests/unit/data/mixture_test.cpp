// Weights that change by step: properties over many random schedules.
#include "data/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/error.h"
#include "data/sampler.h"

namespace ms::data {
namespace {

struct RandomRun {
  std::vector<WeightStage> stages;
  BatchShape shape;
  std::vector<std::int64_t> pool_sizes;  // windows of each source
};

RandomRun random_run(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  RandomRun run{.stages = {}, .shape = {.seq = 4, .global_batch = 4 * (1 + below(4))}, .pool_sizes = {}};
  if (below(2) == 0) run.shape.ramp = {{.batch = 4, .steps = 1 + below(5)}};
  const int sources = 1 + below(4);
  for (int i = 0; i < sources; ++i) run.pool_sizes.push_back(1 + below(60));
  std::int64_t step = 0;
  for (int i = 1 + below(6); i > 0; --i, step += 1 + below(12)) {
    WeightStage& stage = run.stages.emplace_back(WeightStage{.step = step, .weights = {}});
    for (int k = 0; k < sources; ++k) stage.weights.push_back(below(3) == 0 ? 0 : (1 + below(1000)) / 1000.0);
    stage.weights[static_cast<std::size_t>(below(sources))] = 0.5;  // never all 0
  }
  return run;
}

Sampler sampler_of(const RandomRun& run, const BatchShape& shape) {
  std::vector<WindowPool> pools;
  for (std::size_t i = 0; i < run.pool_sizes.size(); ++i) {
    pools.emplace_back(std::vector<Split>{{static_cast<int>(i), 0, run.pool_sizes[i] * shape.seq + 1}}, shape.seq);
  }
  return {std::move(pools), Mixture(run.stages, shape), 7};
}

TEST(Mixture, HasEverySampleOfASourceOncePerEpochWhateverTheSchedule) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const RandomRun run = random_run(seed);
    const Mixture mixture(run.stages, run.shape);
    const Sampler sampler = sampler_of(run, run.shape);
    std::vector<std::int64_t> drawn(run.pool_sizes.size(), 0);
    std::vector<std::set<std::int64_t>> epoch(drawn.size());
    for (std::int64_t step = 0; step < 80; ++step) {
      const auto after = std::ranges::upper_bound(run.stages, step, {}, &WeightStage::step);
      for (std::int64_t i = 0; i < run.shape.batch(step); ++i) {
        const std::int64_t g = run.shape.first_sample(step) + i;
        const Blend::Draw draw = mixture.draw(g);
        const auto source = static_cast<std::size_t>(draw.source);
        ASSERT_GT(std::prev(after)->weights[source], 0) << "seed " << seed << ", step " << step;
        ASSERT_EQ(draw.ordinal, drawn[source]++) << "seed " << seed << ", step " << step;
        const Window window = sampler.sample(g);
        ASSERT_EQ(window.file, draw.source);
        ASSERT_TRUE(epoch[source].insert(window.begin).second) << "seed " << seed << ", step " << step;
        if (std::ssize(epoch[source]) == run.pool_sizes[source]) epoch[source].clear();
      }
    }
  }
}

TEST(Mixture, GivesTheSameOrderFromAnyStepAndToAnyDp) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    RandomRun run = random_run(seed);
    if (seed % 2 == 1) {
      const std::int64_t begin = run.shape.first_sample(9);
      run.shape.skips = {{.step = 9, .begin = begin, .end = begin + 12 + seed}};
    }
    const Sampler walked = sampler_of(run, run.shape);
    for (const std::int64_t step : {1, 7, 13, 30, 61}) {
      BatchShape resumed = run.shape;
      resumed.origin_step = step;
      resumed.origin_sample = run.shape.first_sample(step);
      const Sampler sampler = sampler_of(run, resumed);
      const std::int64_t batch = resumed.batch(step + 2), first = resumed.first_sample(step + 2);
      for (const std::int64_t dp : {1, 2, 4}) {
        for (std::int64_t rank = 0; rank < dp; ++rank) {
          for (std::int64_t i = batch / dp * rank; i < batch / dp * (rank + 1); ++i) {
            ASSERT_EQ(sampler.sample(first + i), walked.sample(run.shape.first_sample(step + 2) + i))
                << "seed " << seed;
          }
        }
      }
    }
  }
}

TEST(Mixture, OfConstantWeightsIsABlend) {
  const WeightStage stage{.step = 0, .weights = {0.123457, 0.876543}};
  const Blend blend(stage.weights);
  const Mixture mixture({&stage, 1}, {.seq = 4, .global_batch = 3});
  for (const std::int64_t begin : {0LL, 1'000'000'000'000LL}) {
    for (std::int64_t g = begin; g < begin + 100'000; ++g) {
      ASSERT_EQ(mixture.draw(g).source, blend.draw(g).source);
      ASSERT_EQ(mixture.draw(g).ordinal, blend.draw(g).ordinal);
    }
  }
}

TEST(Mixture, TakesManyStagesOfUnevenWeights) {
  std::vector<WeightStage> stages;
  for (std::int64_t i = 0; i < 1024; ++i) stages.push_back({i, {0.123457, 0.876543 - static_cast<double>(i) * 1e-6}});
  const Mixture mixture(stages, {.seq = 4, .global_batch = 1000});
  std::int64_t first = 0;
  for (std::int64_t g = 0; g < 1'024'000; ++g) first += mixture.draw(g).source == 0 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(first), 0.1235 * 1'024'000, 0.002 * 1'024'000);
  stages[5].weights[0] = 1e-5;  // below 1/4096 of all
  EXPECT_THROW(Mixture(stages, {.seq = 4, .global_batch = 1000}), Error);
}

}  // namespace
}  // namespace ms::data
