// Main gradients in bf16: every producer rounds its f32 sum once, in every layout and ZeRO stage they stay near those
// in f32, and both optimizers train with them. Moments in bf16 train as those in f32 do.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "training_case.h"

namespace ms::testing_case {
namespace {

train::Settings main_grads_settings(const std::string& family, const char* grads, const Layout& layout = {}) {
  train::Settings settings = with(tiny_settings(family), layout);
  settings.model.layers = 4;
  settings.train.dtype = "bf16";
  settings.optim.main_grads_dtype = grads;
  return settings;
}

float nearest_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFFU + ((bits >> 16) & 1U)) & 0xFFFF0000U);
}

// One microbatch on one rank: nothing adds up, so a gradient in bf16 is that in f32, rounded. Untied: two producers add
// to a tied embedding.
TEST(MainGrads, AreThoseInF32RoundedOnce) {
  for (const std::string family : {"gpt", "llama"}) {
    for (const std::int64_t zero : {0, 1, 2}) {
      for (const bool parallel_block : {false, true}) {
        SCOPED_TRACE(testing::Message() << family << " zero " << zero << (parallel_block ? " parallel" : ""));
        train::Settings settings = main_grads_settings(family, "fp32");
        settings.model.parallel_block = parallel_block;
        settings.model.qk_norm = family == "llama";
        settings.train.global_batch = settings.train.microbatch = 4;
        settings.optim.zero = zero;
        Outcome rounded = run_threads(settings, 1);
        settings.optim.main_grads_dtype = "bf16";
        const Outcome outcome = run_threads(settings, 1);
        EXPECT_EQ(outcome.losses, rounded.losses);
        for (auto& [name, matrix] : rounded.gradients) {
          for (float& value : matrix.values) value = nearest_bf16(value);
        }
        for (const auto& [name, matrix] : rounded.gradients) {
          EXPECT_EQ(outcome.gradients.at(name).values, matrix.values) << name;
        }
      }
    }
  }
}

// Eight additions of a microbatch's gradients, and those over dp and tp, each off by at most 2^-9 of the sum: their
// square root is below three times that for a whole parameter, doubled for sums that shrink.
constexpr double kManyRoundings = 6.0 / 512;

TEST(MainGrads, AreNearThoseInF32InEveryLayout) {
  for (const std::string family : {"gpt", "llama"}) {
    for (const Layout& layout : {Layout{1, 1, 1, 1, true, 1}, Layout{2, 1, 1, 1, true, 0}, Layout{2, 1, 1, 1, true, 1},
                                 Layout{2, 1, 1, 1, true, 2}, Layout{1, 2, 1, 1, true, 1}, Layout{1, 2, 2, 2, false, 2},
                                 Layout{2, 2, 2, 1, true, 1}, Layout{2, 2, 2, 2, true, 2}}) {
      for (const bool tied : {false, true}) {
        SCOPED_TRACE(family + " " + layout.name() + (tied ? " tied" : ""));
        train::Settings settings = main_grads_settings(family, "fp32", layout);
        settings.model.tied_embeddings = tied;
        const Outcome exact = run_threads(settings, 1);
        settings.optim.main_grads_dtype = "bf16";
        const Outcome outcome = run_threads(settings, 1);
        EXPECT_EQ(outcome.losses, exact.losses);
        EXPECT_NEAR(outcome.norms[0] / exact.norms[0], 1, kManyRoundings);
        const Distance far = distance(exact.gradients, outcome.gradients);
        EXPECT_LE(far.value, kManyRoundings) << far.name;
        EXPECT_GT(far.value, 0) << "bf16 gradients have the bits of f32 ones";
      }
    }
  }
}

// Losses of runs in bf16 differ by some hundredths whatever is rounded.
TEST(MainGrads, TrainWithBothOptimizers) {
  constexpr int kSteps = 20;
  for (const char* name : {"adamw", "lamb"}) {
    for (const std::int64_t zero : {1, 2}) {
      SCOPED_TRACE(testing::Message() << name << " zero " << zero);
      train::Settings settings = main_grads_settings("llama", "fp32", {2, 1, 2, 1, true, static_cast<int>(zero)});
      settings.optim.name = name;
      const Outcome exact = run_threads(settings, kSteps);
      settings.optim.main_grads_dtype = "bf16";
      const Outcome outcome = run_threads(settings, kSteps), again = run_threads(settings, kSteps);
      EXPECT_TRUE(same_bits(outcome.parameters, again.parameters));
      EXPECT_LT(outcome.losses.back(), outcome.losses.front() - 0.3);
      for (int i = 0; i < kSteps; ++i) {
        EXPECT_NEAR(outcome.losses[static_cast<std::size_t>(i)], exact.losses[static_cast<std::size_t>(i)], 0.05) << i;
      }
    }
  }
}

TEST(Moments, InBf16TrainAsThoseInF32) {
  constexpr int kSteps = 40;
  train::Settings settings = main_grads_settings("llama", "fp32", {2, 1, 1, 1, true, 1});
  settings.optim.beta2 = 0.999;  // whose steps of 2^-10 rounding to nearest would lose
  const Outcome exact = run_threads(settings, kSteps);
  settings.optim.moments_dtype = "bf16";
  const Outcome outcome = run_threads(settings, kSteps);
  EXPECT_FALSE(same_bits(outcome.parameters, exact.parameters));
  EXPECT_LT(outcome.losses.back(), outcome.losses.front() - 0.3);
  for (std::size_t i = 0; i < outcome.losses.size(); ++i) EXPECT_NEAR(outcome.losses[i], exact.losses[i], 0.05) << i;
}

}  // namespace
}  // namespace ms::testing_case
