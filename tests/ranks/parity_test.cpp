// Parity: every layout computes what one rank computes. Every factorisation of 4 and of 8 into dp x tp x pp, one and
// two chunks, sequence parallelism on and off, every ZeRO stage, for GPT and Llama, in f32.
#include <gtest/gtest.h>

#include <cmath>

#include "pairwise.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

constexpr int kSteps = 20;
// Sums of the same f32 numbers in another order: one part in 2^24 per addition, some hundreds of additions.
constexpr double kGradientTolerance = 1e-5;
constexpr double kLossTolerance = 1e-4;

std::vector<Layout> layouts(int world) {
  std::vector<Layout> all;
  for (int dp = 1; dp <= world; dp *= 2) {
    for (int tp = 1; dp * tp <= world; tp *= 2) {
      const int pp = world / dp / tp;
      for (const int chunks : {1, 2}) {
        if (chunks == 2 && (pp == 1 || pp == 8)) continue;  // one rank has no chunks to interleave; 8 layers
        for (const bool sequence_parallel : {true, false}) {
          if (tp == 1 && !sequence_parallel) continue;  // no difference without tp
          for (const int zero : {0, 1, 2, 3}) {
            if (dp == 1 && (zero == 0 || zero == 3)) continue;  // nothing is sharded: the same as stage 1
            all.push_back({dp, tp, pp, chunks, sequence_parallel, zero});
          }
        }
      }
    }
  }
  return all;
}

// Parameters are gathered in one collective per layer, or one per chunk if there are several.
train::Settings cut(const train::Settings& settings, const Layout& layout) {
  train::Settings parts = with(settings, layout);
  if (layout.chunks == 1) parts.overlap.dp_message = 1;
  return parts;
}

double norm_of(const Matrix& matrix) {
  double sum = 0;
  for (const float x : matrix.values) sum += double{x} * double{x};
  return std::sqrt(sum);
}

// Checks what distance() ignores: the gradient of a key's bias is zero up to rounding, relative to the query's.
void expect_key_biases_zero(const Matrices& gradients) {
  for (const auto& [name, gradient] : gradients) {
    if (!name.ends_with("attn.k.bias")) continue;
    std::string query = name;
    query.replace(query.rfind(".k."), 3, ".q.");
    EXPECT_LE(norm_of(gradient), 1e-4 * norm_of(gradients.at(query))) << name;
  }
}

class Parity : public testing::TestWithParam<std::tuple<std::string, bool, Layout>> {};

TEST_P(Parity, ComputesWhatOneRankComputes) {
  const auto& [family, tied, layout] = GetParam();
  train::Settings settings = tiny_settings(family);
  settings.model.tied_embeddings = tied;
  static std::map<std::string, Outcome> references;
  Outcome& reference = references[family + (tied ? " tied" : "")];
  if (reference.losses.empty()) reference = run_threads(settings, kSteps);
  ASSERT_EQ(reference.losses.size(), std::size_t{kSteps});
  ASSERT_LT(reference.losses.back(), reference.losses.front() - 0.2) << "the reference does not learn";

  const Outcome outcome = run_threads(cut(settings, layout), kSteps);
  ASSERT_EQ(outcome.losses.size(), reference.losses.size());
  const Distance gradients = distance(reference.gradients, outcome.gradients);
  EXPECT_LE(gradients.value, kGradientTolerance) << gradients.name;
  expect_key_biases_zero(outcome.gradients);
  for (int i = 0; i < kSteps; ++i) {
    const auto step = static_cast<std::size_t>(i);
    EXPECT_NEAR(outcome.losses[step], reference.losses[step], kLossTolerance) << "step " << i;
  }
  EXPECT_NEAR(outcome.norms[0], reference.norms[0], 1e-5 * reference.norms[0]);
  EXPECT_NEAR(outcome.valid_loss, reference.valid_loss, kLossTolerance);
}

std::string parity_name(const testing::TestParamInfo<Parity::ParamType>& info) {
  return std::get<0>(info.param) + (std::get<1>(info.param) ? "_tied_" : "_") + std::get<2>(info.param).name();
}

std::vector<Parity::ParamType> combinations() {
  std::vector<Parity::ParamType> all;
  for (const char* family : {"gpt", "llama", "moe"}) {
    for (const int world : {4, 8}) {
      for (const Layout& layout : layouts(world)) all.emplace_back(family, false, layout);
    }
  }
  return all;
}

std::vector<std::string> dimensions(const Parity::ParamType& row) {
  const Layout& layout = std::get<2>(row);
  std::vector<std::string> values = {std::get<0>(row)};
  for (const int value : {layout.dp, layout.tp, layout.pp, layout.chunks, int{layout.sequence_parallel}, layout.zero}) {
    values.push_back(std::to_string(value));
  }
  return values;
}

INSTANTIATE_TEST_SUITE_P(Pairs, Parity, testing::ValuesIn(pairwise(combinations(), dimensions)), parity_name);
INSTANTIATE_TEST_SUITE_P(All, Parity, testing::ValuesIn(combinations()), parity_name);  // nightly (CMakeLists.txt)
// The shared embedding is summed over the ends of the pipeline, cut over dp and tp like everything else.
INSTANTIATE_TEST_SUITE_P(Tied, Parity,
                         testing::Combine(testing::Values("gpt", "llama", "moe"), testing::Values(true),
                                          testing::Values(Layout{1, 1, 2, 1, true, 1}, Layout{1, 1, 4, 2, true, 1},
                                                          Layout{2, 2, 2, 1, true, 0}, Layout{2, 2, 2, 2, true, 1},
                                                          Layout{2, 2, 2, 1, false, 2}, Layout{4, 2, 1, 1, true, 1})),
                         parity_name);

// Experts shared by ranks, on every side of the other axes.
INSTANTIATE_TEST_SUITE_P(
    ExpertParallel, Parity,
    testing::Combine(testing::Values("moe", "dots"), testing::Values(false),
                     testing::Values(Layout{2, 1, 1, 1, true, 1, 2}, Layout{4, 1, 1, 1, true, 1, 2},
                                     Layout{4, 1, 1, 1, true, 2, 4}, Layout{4, 1, 1, 1, true, 0, 2},
                                     Layout{2, 2, 1, 1, false, 1, 2}, Layout{2, 2, 2, 1, true, 1, 2},
                                     Layout{2, 2, 2, 2, true, 1, 2}, Layout{4, 2, 1, 1, true, 2, 2},
                                     Layout{4, 1, 2, 2, true, 2, 4}, Layout{8, 1, 1, 1, true, 1, 4},
                                     Layout{8, 1, 1, 1, true, 0, 8}, Layout{4, 1, 1, 1, true, 2, 4, true},
                                     Layout{4, 1, 1, 1, true, 1, 2, true}, Layout{2, 2, 2, 2, true, 1, 2, true},
                                     Layout{4, 2, 1, 1, false, 0, 4, true})),
    parity_name);

// Whole experts on each rank of tp: fewer ranks of ep than of tp, as many, more; replicated over tp and dp.
INSTANTIATE_TEST_SUITE_P(
    FoldedExperts, Parity,
    testing::Combine(testing::Values("moe", "dots"), testing::Values(false),
                     testing::Values(folded({1, 2, 1, 1, true, 1, 2}), folded({1, 2, 1, 1, false, 1, 1}),
                                     folded({2, 2, 1, 1, true, 1, 1}), folded({2, 2, 1, 1, true, 1, 2}),
                                     folded({2, 2, 1, 1, false, 1, 4}), folded({1, 4, 1, 1, true, 1, 2}),
                                     folded({4, 2, 1, 1, true, 2, 4}), folded({4, 2, 1, 1, false, 0, 2}),
                                     folded({2, 4, 1, 1, true, 1, 8}), folded({2, 2, 2, 1, true, 2, 2}),
                                     folded({2, 2, 2, 2, true, 1, 4}), folded({2, 2, 1, 1, true, 1, 4, true}),
                                     folded({2, 2, 2, 1, false, 2, 2, true}), folded({1, 4, 1, 1, true, 1, 2, true}))),
    parity_name);

// Ranks of tp that share the routing.
INSTANTIATE_TEST_SUITE_P(
    SharedRouting, Parity,
    testing::Combine(testing::Values("moe"), testing::Values(false),
                     testing::Values(Layout{2, 2, 1, 1, true, 1, 2}, Layout{2, 2, 1, 1, false, 1, 2},
                                     Layout{2, 4, 1, 1, true, 1, 2}, Layout{2, 4, 1, 1, false, 1, 2},
                                     Layout{4, 2, 1, 1, true, 1, 4}, Layout{4, 2, 1, 1, false, 2, 4},
                                     Layout{4, 4, 1, 1, true, 1, 4}, Layout{4, 4, 1, 1, false, 0, 4})),
    parity_name);

// Bits: another pp, number of chunks or schedule changes no bit (untied, no clipping).
TEST(Bits, DoNotDependOnThePipeline) {
  for (const std::string family : {"gpt", "llama", "moe", "dots"}) {
    train::Settings settings = tiny_settings(family);
    settings.optim.clip = 0;
    const Outcome one = run_threads(cut(settings, {2, 2, 1, 1, true, 1}), kSteps);
    for (const auto& [pp, chunks, schedule, last_layers] : {std::tuple{2, 1, "1f1b", 0},
                                                            {2, 2, "1f1b", 0},
                                                            {4, 1, "1f1b", 0},
                                                            {4, 2, "1f1b", 0},
                                                            {2, 1, "gpipe", 0},
                                                            {2, 1, "1f1b", 3},
                                                            {2, 2, "1f1b", 1}}) {
      settings.mesh.schedule = schedule;
      settings.mesh.last_layers = last_layers;
      const Outcome other = run_threads(cut(settings, {2, 2, pp, chunks, true, 1}), kSteps);
      EXPECT_EQ(one.losses, other.losses) << family << " pp " << pp << " chunks " << chunks;
      EXPECT_TRUE(same_bits(one.gradients, other.gradients)) << family << " pp " << pp << " chunks " << chunks;
      EXPECT_TRUE(same_bits(one.parameters, other.parameters)) << family << " pp " << pp << " chunks " << chunks;
    }
  }
}

// Tied, the embedding's gradient is (sum of one end) + (sum of the other) over a pipeline, and one sum on one stage:
// the manual (model.tied_embeddings) promises the same bits among pipelines only.
TEST(Bits, OfTiedEmbeddingsAreTheSameOverPipelines) {
  for (const std::string family : {"gpt", "llama", "moe"}) {
    train::Settings settings = tiny_settings(family);
    settings.model.tied_embeddings = true;
    settings.optim.clip = 0;
    const auto run = [&](int pp, int chunks) { return run_threads(cut(settings, {2, 2, pp, chunks, true, 1}), 5); };
    const Outcome two = run(2, 1), one = run(1, 1);
    for (const auto& [pp, chunks] : {std::pair{2, 2}, {4, 1}, {4, 2}}) {
      const Outcome other = run(pp, chunks);
      EXPECT_EQ(two.losses, other.losses) << family << " pp " << pp << " chunks " << chunks;
      EXPECT_TRUE(same_bits(two.gradients, other.gradients)) << family << " pp " << pp << " chunks " << chunks;
      EXPECT_TRUE(same_bits(two.parameters, other.parameters)) << family << " pp " << pp << " chunks " << chunks;
    }
    EXPECT_FALSE(same_bits(one.gradients, two.gradients)) << family << ": the manual promises too little";
    EXPECT_LE(distance(one.gradients, two.gradients).value, 1e-6) << family;
    EXPECT_EQ(one.losses[0], two.losses[0]) << "the forward is the same";
  }
}

TEST(Bits, SameConfigurationSameBitsTwice) {
  train::Settings settings = cut(tiny_settings("gpt"), {2, 2, 2, 2, true, 1});
  settings.train.dtype = "bf16";
  const Outcome first = run_threads(settings, 5), second = run_threads(settings, 5);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.norms, second.norms);
  EXPECT_TRUE(same_bits(first.parameters, second.parameters));
}

TEST(Bits, RecomputationChangesNothing) {
  for (const std::string family : {"gpt", "llama", "moe", "dots"}) {
    train::Settings settings = cut(tiny_settings(family), {1, 2, 2, 1, true, 1});
    const Outcome kept = run_threads(settings, 5);
    for (const std::string recompute : {"selective", "full"}) {
      settings.train.recompute = recompute;
      const Outcome again = run_threads(settings, 5);
      EXPECT_EQ(kept.losses, again.losses) << family << " " << recompute;
      EXPECT_TRUE(same_bits(kept.parameters, again.parameters)) << family << " " << recompute;
    }
  }
}

// Overlap and what is recomputed keep their bits, too.
TEST(Bits, OfExpertsDoNotDependOnThePipelineNorOnRecomputation) {
  struct Row {
    const char* family;
    int dp, tp;
    bool sequence_parallel, gathers;
    int ep = 2, expert_tp = 0;
  };
  const Row rows[] = {{"moe", 4, 1, true, false},
                      {"moe", 4, 1, true, true},
                      {"moe", 2, 2, true, false},
                      {"mixtral", 2, 2, true, false},
                      {"mixtral", 2, 2, false, false},
                      {"moe", 2, 2, true, false, 4, 1},
                      {"mixtral", 2, 2, false, false, 2, 1},
                      {"mixtral", 1, 2, true, true, 2, 1}};
  for (const auto& [family, dp, tp, sequence_parallel, gathers, ep, expert_tp] : rows) {
    train::Settings settings = tiny_settings(family);
    settings.optim.clip = 0;
    Layout at{dp, tp, 1, 1, sequence_parallel, 1, ep, gathers};
    at.expert_tp = expert_tp;
    const auto layout = [at](int pp, int chunks) {
      Layout piped = at;
      piped.pp = pp, piped.chunks = chunks;
      return piped;
    };
    const Outcome one = run_threads(cut(settings, layout(1, 1)), 5);
    const auto expect_same = [&, family = family](int pp, int chunks) {
      const Outcome other = run_threads(cut(settings, layout(pp, chunks)), 5);
      EXPECT_EQ(one.losses, other.losses) << family << " " << layout(pp, chunks).name();
      EXPECT_TRUE(same_bits(one.parameters, other.parameters)) << family << " " << layout(pp, chunks).name();
    };
    expect_same(2, 2);
    expect_same(2, 1);
    settings.mesh.schedule = "zb-h1";
    expect_same(2, 1);
    settings.mesh.schedule = "1f1b";
    settings.train.recompute = "full";
    expect_same(1, 1);
    settings.train.recompute = "selective";
    settings.overlap.dp = !settings.overlap.dp, settings.overlap.ep = !settings.overlap.ep;
    expect_same(1, 1);
  }
}

// Ranks that exchange slots sum a token's experts in one order, whoever holds them: the forward keeps its bits, and so
// do the gradients of all that is not an expert's. An expert's gradient is one sum over the tokens of all ep ranks
// instead of one of each rank's. Ranks that gather tokens sum by rank.
TEST(Bits, OfTheForwardDoNotDependOnWhoHoldsTheExperts) {
  train::Settings settings = tiny_settings("moe");
  settings.optim.clip = 0;
  settings.model.experts_per_token = 3;  // the sum of two has no order
  const Outcome alone = run_threads(cut(settings, {4, 1, 1, 1, true, 1}), 1);
  for (const int ep : {2, 4}) {
    const Outcome shared = run_threads(cut(settings, {4, 1, 1, 1, true, 1, ep}), 1);
    EXPECT_EQ(alone.losses, shared.losses) << ep;
    for (const auto& [name, gradient] : alone.gradients) {
      const bool is_same = same_bits({{name, gradient}}, {{name, shared.gradients.at(name)}});
      EXPECT_TRUE(is_same || name.find("experts.") != std::string::npos) << name << " over " << ep;
    }
  }
  EXPECT_NE(alone.losses, run_threads(cut(settings, {4, 1, 1, 1, true, 1, 4, true}), 1).losses);
  const Outcome over_tp = run_threads(cut(settings, folded({2, 2, 1, 1, true, 1, 1})), 1);
  for (const int ep : {2, 4})
    EXPECT_EQ(over_tp.losses, run_threads(cut(settings, folded({2, 2, 1, 1, true, 1, ep})), 1).losses) << ep;
}

TEST(Bf16, LearnsInEveryDimension) {
  for (const std::string family : {"gpt", "llama", "moe"}) {
    train::Settings settings = tiny_settings(family);
    settings.train.dtype = "bf16";
    settings.model.vocab_multiple = 1;  // padding changes the order of sums over the vocabulary, by up to 0.034 here
    const Outcome one = run_threads(settings, kSteps);
    const Outcome all = run_threads(cut(settings, {2, 2, 2, 1, true, 1}), kSteps);
    // bf16 keeps 8 bits: a part in 256 per rounded value, averaged over many. Where two scores of a router are nearly
    // equal, it decides to which expert a token goes.
    const double tolerance = family == "moe" ? 0.1 : 0.03;
    for (std::size_t i = 0; i < one.losses.size(); ++i) EXPECT_NEAR(one.losses[i], all.losses[i], tolerance) << i;
    EXPECT_LT(all.losses.back(), all.losses.front() - 0.2);
  }
}

}  // namespace
}  // namespace ms::testing_case
