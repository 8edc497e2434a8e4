// Learning-rate schedules: exact values at their edges, and the sum over a run against its closed form.
#include <gtest/gtest.h>

#include "optim/learning_rate.h"

namespace ms::optim {
namespace {

constexpr double kPeak = 0.5;

OptimConfig schedule(std::string_view name, std::int64_t warmup, double min_ratio = 0.2, double decay = 0.5,
                     std::int64_t decay_steps = 0) {
  OptimConfig config;
  config.lr = kPeak;
  config.schedule = name;
  config.warmup_steps = warmup;
  config.min_lr_ratio = min_ratio;
  config.decay_fraction = decay;
  config.decay_steps = decay_steps;
  return config;
}

TEST(LearningRate, ValuesAtTheEdges) {
  struct Case {
    const char* what;
    OptimConfig config;
    std::int64_t steps, step;
    double part;  // of the peak
  };
  const Case cases[] = {
      {"the first step of a warm-up is not 0", schedule("cosine", 4), 11, 0, 0.25},
      {"warm-up is linear", schedule("cosine", 4), 11, 1, 0.5},
      {"the last step of the warm-up has the peak", schedule("cosine", 4), 11, 3, 1},
      {"cosine starts at the peak", schedule("cosine", 4), 11, 4, 1},
      {"cosine in the middle", schedule("cosine", 4), 11, 7, 0.6},
      {"cosine at a third", schedule("cosine", 4), 11, 6, 0.8},
      {"cosine ends at the minimum", schedule("cosine", 4), 11, 10, 0.2},
      {"cosine stays there", schedule("cosine", 4), 11, 1000, 0.2},
      {"cosine without a warm-up", schedule("cosine", 0), 11, 0, 1},
      {"cosine to 0", schedule("cosine", 0, 0), 11, 10, 0},
      {"cosine to the peak", schedule("cosine", 0, 1), 11, 7, 1},
      {"nothing but warm-up", schedule("cosine", 4), 4, 3, 1},
      {"a run of one step", schedule("cosine", 0), 1, 0, 1},
      {"wsd warms up", schedule("wsd", 2), 12, 0, 0.5},
      {"wsd is stable", schedule("wsd", 2), 12, 5, 1},
      {"wsd starts to decay at the peak", schedule("wsd", 2), 12, 6, 1},
      {"wsd decays linearly", schedule("wsd", 2), 12, 7, 0.84},
      {"wsd ends at the minimum", schedule("wsd", 2), 12, 11, 0.2},
      {"wsd without decay", schedule("wsd", 2, 0.2, 0), 12, 11, 1},
      {"wsd with decay only starts after the warm-up", schedule("wsd", 2, 0.2, 1), 12, 2, 1},
      {"wsd with decay only", schedule("wsd", 2, 0.2, 1), 12, 11, 0.2},
      {"a decay of one step", schedule("wsd", 0, 0.2, 0.1), 10, 9, 1},
      {"wsd's decay in steps", schedule("wsd", 2, 0.2, 0.5, 3), 12, 8, 1},
      {"wsd's decay in steps begins at the peak", schedule("wsd", 2, 0.2, 0.5, 3), 12, 9, 1},
      {"wsd's decay in steps is linear", schedule("wsd", 2, 0.2, 0.5, 3), 12, 10, 0.6},
      {"wsd's decay in steps ends at the minimum", schedule("wsd", 2, 0.2, 0.5, 3), 12, 11, 0.2},
      {"linear warms up", schedule("linear", 4), 11, 1, 0.5},
      {"linear starts at the peak", schedule("linear", 4), 11, 4, 1},
      {"linear in the middle", schedule("linear", 4), 11, 7, 0.6},
      {"linear at a third", schedule("linear", 4), 11, 6, 1 - 0.8 / 3},
      {"linear ends at the minimum", schedule("linear", 4), 11, 10, 0.2},
      {"inverse-sqrt warms up", schedule("inverse-sqrt", 4, 0), 100, 1, 0.5},
      {"inverse-sqrt has its peak where the warm-up ends", schedule("inverse-sqrt", 4, 0), 100, 3, 1},
      {"inverse-sqrt at four times the warm-up", schedule("inverse-sqrt", 4, 0), 100, 15, 0.5},
      {"inverse-sqrt does not know the end", schedule("inverse-sqrt", 4, 0), 16, 15, 0.5},
      {"inverse-sqrt stops at the minimum", schedule("inverse-sqrt", 4, 0.2), 1000, 899, 0.2},
      {"inverse-sqrt without a warm-up", schedule("inverse-sqrt", 0, 0), 100, 8, 1.0 / 3},
      {"constant warms up", schedule("constant", 2), 10, 0, 0.5},
      {"constant", schedule("constant", 2), 10, 9, 1},
  };
  for (const Case& c : cases) {
    EXPECT_NEAR(learning_rate(c.config, c.step, c.steps), kPeak * c.part, 1e-15) << c.what;
  }
}

TEST(LearningRate, SumOverARun) {
  constexpr std::int64_t kSteps = 1000, kWarmup = 100;
  struct Case {
    const char* name;
    double sum;  // in peaks, after the warm-up
  };
  // Cosine and the linear decay are symmetric about their middle, which is the mean of both ends.
  const Case cases[] = {{"cosine", 900 * 0.6}, {"linear", 900 * 0.6}, {"wsd", 400 + 500 * 0.6}, {"constant", 900}};
  for (const Case& c : cases) {
    const OptimConfig config = schedule(c.name, kWarmup);
    double sum = 0;
    for (std::int64_t step = 0; step < kSteps; ++step) sum += learning_rate(config, step, kSteps);
    EXPECT_NEAR(sum, kPeak * (kWarmup * (kWarmup + 1) / (2.0 * kWarmup) + c.sum), 1e-10) << c.name;
  }
}

TEST(LearningRate, NeverGrowsAfterTheWarmUp) {
  for (const LearningRateKind& kind : learning_rate_kinds()) {
    const std::string_view name = kind.name;
    const OptimConfig config = schedule(kind.name, 10);
    for (std::int64_t step = 10; step < 100; ++step) {
      EXPECT_LE(learning_rate(config, step, 100), learning_rate(config, step - 1, 100)) << name << ", step " << step;
    }
  }
}

}  // namespace
}  // namespace ms::optim
