// Parity on one GPU: every factorization of 8 into dp x tp x pp, its ranks being threads that share the GPU, computes
// what one rank computes, and what the CPU computes, in bf16.
#include <gtest/gtest.h>

#include "../ranks/training_case.h"
#include "tensor/cuda_plugin.h"

namespace ms::testing_case {
namespace {

constexpr int kSteps = 2;
// bf16 keeps 8 bits: 1/256 for every value that is rounded, which happens elsewhere when matmuls are split.
constexpr double kGradientTolerance = 0.03, kLossTolerance = 0.02;

const Devices& gpu() {
  static tensor::SharedPlans plans;  // of all runs
  static const Devices kShared = [](tensor::CpuPool& pool) { return tensor::make_shared_cuda_device(0, pool, plans); };
  return kShared;
}

// Heads of 8, the smallest that attention on a GPU accepts.
train::Settings settings_of(const std::string& family) {
  train::Settings settings = tiny_settings(family);
  settings.model.heads = 8;
  settings.model.kv_heads = family == "gpt" ? 0 : 4;
  settings.train.dtype = "bf16";
  // Of two scores that are nearly equal another may be the higher one after other roundings.
  settings.model.experts_per_token = std::max<std::int64_t>(settings.model.experts, 1);
  return settings;
}

class GpuParity : public testing::Test {
 protected:
  void SetUp() override {
    try {
      tensor::make_cuda_device(0);
    } catch (const Error& error) { GTEST_SKIP() << "needs a GPU: " << error.message(); }
  }
};

void expect_alike(const Outcome& want, const Outcome& got) {
  ASSERT_EQ(want.losses.size(), got.losses.size());
  for (std::size_t i = 0; i < want.losses.size(); ++i) EXPECT_NEAR(want.losses[i], got.losses[i], kLossTolerance) << i;
  const Distance gradients = distance(want.gradients, got.gradients);
  EXPECT_LE(gradients.value, kGradientTolerance) << gradients.name;
  EXPECT_NEAR(want.valid_loss, got.valid_loss, kLossTolerance);
}
void expect_same_bits(const Outcome& want, const Outcome& got) {
  EXPECT_EQ(want.losses, got.losses);
  EXPECT_EQ(want.norms, got.norms);
  EXPECT_TRUE(same_bits(want.gradients, got.gradients));
  EXPECT_TRUE(same_bits(want.parameters, got.parameters));
}

TEST_F(GpuParity, OneRankComputesWhatTheCpuComputes) {
  for (const std::string family : {"gpt", "llama", "moe"}) {
    SCOPED_TRACE(family);
    const train::Settings settings = settings_of(family);
    const Devices alone = [](tensor::CpuPool&) { return tensor::make_cuda_device(0); };
    const Outcome on_gpu = run_threads(settings, kSteps, alone);
    expect_alike(run_threads(settings, kSteps), on_gpu);
    // A device of its own and a shared device issue the same ops.
    expect_same_bits(on_gpu, run_threads(settings, kSteps, gpu()));
    const Devices atomics = [](tensor::CpuPool&) { return tensor::make_cuda_device(0, {.deterministic = false}); };
    expect_alike(on_gpu, run_threads(settings, kSteps, atomics));
  }
}

// Recomputed values are the same, also with a fused GELU.
TEST_F(GpuParity, RecomputationChangesNothing) {
  train::Settings settings = settings_of("gpt");
  const Outcome kept = run_threads(settings, kSteps, gpu());
  for (const char* recompute : {"selective", "full"}) {
    SCOPED_TRACE(recompute);
    settings.train.recompute = recompute;
    Outcome again = run_threads(settings, kSteps, gpu());
    if (std::string_view(recompute) == "full") {
      expect_same_bits(kept, again);
    } else {  // the recomputed activation is a separate op, and then in the forward too
      expect_alike(kept, again);
    }
  }
}

TEST_F(GpuParity, Fp8MatchesTheCpu) {
  train::Settings settings = settings_of("llama");
  settings.train.fp8 = true;
  const Outcome one = run_threads(settings, kSteps, gpu());
  ASSERT_FALSE(HasFailure());
  // Near the middle of two fp8 numbers the least difference decides between them: for gradients a quarter.
  constexpr double kGradients = 0.25, kLosses = 0.04;
  const auto expect_near = [&](const Outcome& want) {
    for (std::size_t i = 0; i < want.losses.size(); ++i) EXPECT_NEAR(want.losses[i], one.losses[i], kLosses) << i;
    const Distance gradients = distance(want.gradients, one.gradients);
    EXPECT_LE(gradients.value, kGradients) << gradients.name;
  };
  expect_near(run_threads(settings, kSteps));
  expect_near(run_threads(with(settings, {2, 2, 2, 1, true, 1}), kSteps, gpu()));
  expect_same_bits(one, run_threads(settings, kSteps, gpu()));
  settings.train.fp8 = false;
  const Outcome given = run_threads(settings, kSteps, gpu());
  EXPECT_NE(given.losses, one.losses);
  for (std::size_t i = 0; i < given.losses.size(); ++i) EXPECT_NEAR(given.losses[i], one.losses[i], kLosses) << i;
}

// Each document of a row alone, also where queries and keys have a window.
TEST_F(GpuParity, DocumentsMatchTheCpu) {
  for (const std::string family : {"gpt", "llama"}) {
    SCOPED_TRACE(family);
    train::Settings settings = settings_of(family);
    settings.model.layers = 2;
    settings.model.window = family == "llama" ? 5 : 0;
    const Outcome whole = run_threads(settings, 1, gpu());
    settings.data.reset_attention = true;
    const Outcome on_gpu = run_threads(settings, 1, gpu());
    expect_alike(run_threads(settings, 1), on_gpu);
    EXPECT_GT(distance(whole.gradients, on_gpu.gradients).value, 2 * kGradientTolerance) << "documents are not masked";
  }
}

// Ranks that exchange tokens for heads; with few key-value heads it is chosen because a GPU attends to whole sequences.
TEST_F(GpuParity, ContextMatchesTheCpu) {
  for (const std::string family : {"gpt", "llama"}) {
    SCOPED_TRACE(family);
    train::Settings settings = settings_of(family);
    settings.model.layers = 2;
    settings.data.reset_attention = family == "llama";
    const Outcome one = run_threads(settings, kSteps);
    settings.run.device = "cuda";
    settings.mesh.cp = 2;
    for (const int tp : {1, 2}) {
      settings.mesh.tp = tp;
      EXPECT_EQ(train::cp_type_of(settings), nn::CpType::all_to_all);
      expect_alike(one, run_threads(settings, kSteps, gpu()));
    }
  }
}

// Ranks of ep exchange rows of experts, which ranks of tp gather, unless each of these has whole experts.
TEST_F(GpuParity, ExpertsOfSeveralRanksMatchTheCpu) {
  for (const Layout& layout :
       {Layout{2, 2, 1, 1, true, 1, 2}, Layout{2, 2, 1, 1, false, 1, 2}, folded({2, 2, 1, 1, true, 1, 4})}) {
    const train::Settings settings = with(settings_of("moe"), layout);
    expect_alike(run_threads(settings, kSteps), run_threads(settings, kSteps, gpu()));
  }
}

TEST_F(GpuParity, MainGradsInBf16MatchTheCpu) {
  for (const auto& [family, zero] : {std::pair{"gpt", 2}, {"llama", 1}}) {
    SCOPED_TRACE(family);
    train::Settings settings = with(settings_of(family), {2, 1, 1, 1, true, zero});
    settings.model.layers = 2;
    settings.optim.main_grads_dtype = "bf16";
    settings.optim.name = zero == 2 ? "lamb" : zero == 1 ? "muon" : "adamw";
    const Outcome on_gpu = run_threads(settings, kSteps, gpu());
    expect_alike(run_threads(settings, kSteps), on_gpu);
    settings.optim.main_grads_dtype = "fp32";
    expect_alike(run_threads(settings, kSteps, gpu()), on_gpu);
  }
}

// Interleaved if there are stages to interleave, with and without sequence parallelism, every ZeRO stage.
std::vector<std::tuple<std::string, Layout>> factorizations_of_eight() {
  std::vector<std::tuple<std::string, Layout>> all;
  for (const std::string family : {"gpt", "llama"}) {
    for (int dp = 1; dp <= 8; dp *= 2) {
      for (int tp = 1; dp * tp <= 8; tp *= 2) {
        if (family == "llama" && tp == 8) continue;  // four key/value heads
        const int pp = 8 / dp / tp;
        all.push_back({family, {dp, tp, pp, pp == 2 || pp == 4 ? 2 : 1, tp != 4, dp == 4 ? 2 : dp == 8 ? 0 : 1}});
      }
    }
  }
  return all;
}

class Factorizations : public GpuParity, public testing::WithParamInterface<std::tuple<std::string, Layout>> {};

TEST_P(Factorizations, ComputeWhatOneRankComputes) {
  const auto& [family, layout] = GetParam();
  const train::Settings settings = settings_of(family);
  static std::map<std::string, Outcome> references;
  Outcome& one = references[family];
  if (one.losses.empty()) one = run_threads(settings, kSteps, gpu());
  expect_alike(one, run_threads(with(settings, layout), kSteps, gpu()));
}
INSTANTIATE_TEST_SUITE_P(OfEight, Factorizations, testing::ValuesIn(factorizations_of_eight()), [](const auto& made) {
  return std::get<0>(made.param) + "_" + std::get<1>(made.param).name();
});

TEST_F(GpuParity, BitsDoNotDependOnThePipelineNorOnTheRun) {
  train::Settings settings = settings_of("gpt");
  settings.optim.clip = 0;
  const Outcome one = run_threads(with(settings, {2, 2, 1, 1, true, 1}), kSteps, gpu());
  expect_same_bits(one, run_threads(with(settings, {2, 2, 1, 1, true, 1}), kSteps, gpu()));
  const Outcome other = run_threads(with(settings, {2, 2, 2, 2, true, 1}), kSteps, gpu());
  EXPECT_EQ(one.losses, other.losses);
  EXPECT_TRUE(same_bits(one.gradients, other.gradients));
  EXPECT_TRUE(same_bits(one.parameters, other.parameters));
}

}  // namespace
}  // namespace ms::testing_case
