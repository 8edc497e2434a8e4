// Model variants, parallel blocks, sliding windows, and the relatives of Llama: every layout computes what one rank
// computes, whatever is recomputed, fused or overlapped. The golden tests check the values themselves.
#include <gtest/gtest.h>

#include <cmath>

#include "training_case.h"

namespace ms::testing_case {
namespace {

constexpr int kSteps = 4;
// As in parity_test.cpp: the same f32 sums in another order.
constexpr double kGradientTolerance = 1e-5;
constexpr double kLossTolerance = 1e-4;

struct Model {
  const char* family;
  bool parallel_block;
  std::int64_t window;
  bool qkv_bias = false, biases = false, qk_norm = false;  // biases: all of them
  bool documents = false;                                  // [data] reset_attention
  std::string name() const {
    return fmt::format("{}{}{}{}{}{}{}", family, parallel_block ? "_parallel" : "", window > 0 ? "_window" : "",
                       qkv_bias ? "_qkv" : "", biases ? "_biases" : "", qk_norm ? "_qknorm" : "",
                       documents ? "_documents" : "");
  }
};
const std::vector<Model> kModels{{"gpt", true, 0},
                                 {"gpt", false, 5},
                                 {"gpt", true, 5},
                                 {"llama", true, 0},
                                 {"llama", false, 5},
                                 {"llama", true, 5},
                                 {.family = "llama", .parallel_block = false, .window = 0, .qkv_bias = true},
                                 {.family = "llama", .parallel_block = false, .window = 0, .qk_norm = true},
                                 {"llama", false, 0, false, true, true},
                                 {"llama", true, 5, false, true, true},
                                 {"gpt", false, 0, false, false, false, true},
                                 {"neox", true, 0},
                                 {"neox", false, 5},
                                 {"llama", true, 5, false, false, true, true}};

train::Settings settings_of(const Model& model) {
  train::Settings settings = tiny_settings(model.family);
  settings.model.parallel_block = model.parallel_block;
  settings.model.window = model.window;
  settings.model.qkv_bias = model.qkv_bias || model.biases;
  settings.model.out_bias = settings.model.mlp_bias = model.biases;
  settings.model.qk_norm = model.qk_norm;
  settings.data.reset_attention = model.documents;
  if (model.qk_norm) settings.model.head_size = 6, settings.model.rotary_scaling = "linear";
  return settings;
}

struct Variant {
  const char* name;
  Layout layout = {};
  const char* recompute = "none";
  bool fused = true, overlap_tp = false;
  const char* schedule = "1f1b";
};
const std::vector<Variant> kVariants{
    {.name = "unfused", .fused = false},
    {.name = "dp2_z2", .layout = {.dp = 2, .zero = 2}},
    {.name = "tp2", .layout = {.tp = 2}},
    {.name = "tp8", .layout = {.tp = 8}},
    {.name = "tp4_nosp", .layout = {.tp = 4, .sequence_parallel = false}},
    {.name = "tp2_unfused", .layout = {.tp = 2}, .fused = false},
    {.name = "pp2_v2", .layout = {.pp = 2, .chunks = 2}},
    {.name = "pp4_full", .layout = {.pp = 4}, .recompute = "full"},
    {.name = "tp2_pp4_selective_zb_h1", .layout = {.tp = 2, .pp = 4}, .recompute = "selective", .schedule = "zb-h1"},
    {.name = "tp2_selective", .layout = {.tp = 2}, .recompute = "selective"},
    {.name = "dp2_tp2_pp2_z0", .layout = {.dp = 2, .tp = 2, .pp = 2, .zero = 0}},
    {.name = "tp4_overlap", .layout = {.tp = 4}, .overlap_tp = true},
    {.name = "dp2_tp2_pp2_v2_overlap_full_unfused",
     .layout = {.dp = 2, .tp = 2, .pp = 2, .chunks = 2},
     .recompute = "full",
     .fused = false,
     .overlap_tp = true},
};

train::Settings with(const train::Settings& plain, const Variant& variant) {
  train::Settings settings = with(plain, variant.layout);
  settings.train.recompute = variant.recompute;
  settings.model.fused = variant.fused;
  settings.overlap.tp = variant.overlap_tp;
  settings.mesh.schedule = variant.schedule;
  return settings;
}

class ModelParity : public testing::TestWithParam<std::tuple<Model, Variant>> {};

TEST_P(ModelParity, ComputesWhatOneRankComputes) {
  const auto& [model, variant] = GetParam();
  static std::map<std::string, Outcome> references;
  Outcome& reference = references[model.name()];
  if (reference.losses.empty()) reference = run_threads(settings_of(model), kSteps);
  ASSERT_EQ(reference.losses.size(), std::size_t{kSteps});

  const Outcome outcome = run_threads(with(settings_of(model), variant), kSteps);
  ASSERT_EQ(outcome.losses.size(), reference.losses.size());
  const Distance gradients = distance(reference.gradients, outcome.gradients);
  EXPECT_LE(gradients.value, kGradientTolerance) << gradients.name;
  for (std::size_t i = 0; i < reference.losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], reference.losses[i], kLossTolerance) << "step " << i;
  }
  EXPECT_NEAR(outcome.norms[0], reference.norms[0], 1e-5 * reference.norms[0]);
  EXPECT_NEAR(outcome.valid_loss, reference.valid_loss, kLossTolerance);
}

std::string parity_name(const testing::TestParamInfo<ModelParity::ParamType>& info) {
  return std::get<0>(info.param).name() + "_" + std::get<1>(info.param).name;
}
INSTANTIATE_TEST_SUITE_P(Layouts, ModelParity,
                         testing::Combine(testing::ValuesIn(kModels), testing::ValuesIn(kVariants)), parity_name);

void expect_same_bits(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_TRUE(same_bits(a.gradients, b.gradients)) << what;
  EXPECT_TRUE(same_bits(a.parameters, b.parameters)) << what;
}

class BiasSums final : public tensor::OpObserver {
 public:
  void ran(const tensor::Op& op, double) override {
    const auto* product = std::get_if<tensor::Matmul>(&op);
    joined += product != nullptr && product->a_sums ? 1 : 0;
    apart += std::holds_alternative<tensor::ColumnSum>(op) ? 1 : 0;
    layers += std::holds_alternative<tensor::AttentionBwd>(op) ? 1 : 0;
  }
  int joined = 0, apart = 0, layers = 0;
};

// The matmul of a weight's gradient computes that of its bias, unless a rank sums a part of the rows only.
TEST(BiasGradients, ArePartsOfMatmuls) {
  struct Case {
    Model model;
    Variant variant;
    int joined, apart;  // of a layer
  };
  for (const Case& c : {Case{{"gpt", false, 0}, {.name = "one"}, 4, 0},
                        {{"gpt", true, 0}, {.name = "parallel"}, 3, 0},
                        {{"gpt", false, 0}, {.name = "unfused", .fused = false}, 0, 4},
                        {{"gpt", false, 0}, {.name = "tp2", .layout = {.tp = 2}}, 2, 2}}) {
    SCOPED_TRACE(c.variant.name);
    on_threads(with(settings_of(c.model), c.variant),
               [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
                 BiasSums sums;
                 observe_step(plan, world, device, sums);
                 EXPECT_GT(sums.layers, 0);
                 EXPECT_EQ(sums.joined, c.joined * sums.layers);
                 EXPECT_EQ(sums.apart, c.apart * sums.layers);
               });
  }
}

// A row of two documents is two rows of half the length.
TEST(ModelDocuments, AreAsRowsOfTheirOwn) {
  for (const Model& model : {Model{"gpt", false, 0}, Model{"llama", true, 5}}) {
    train::Settings settings = settings_of(model);
    const auto loss_of = [&](std::int64_t seq, bool documents) {
      settings.model.seq = seq, settings.data.reset_attention = documents;
      settings.train.microbatch = settings.train.global_batch = 4 * 16 / seq;
      double loss = 0;
      on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
        train::Engine engine(plan, world, device);
        engine.initialize(1);
        std::vector<std::int32_t> tokens, targets, starts;
        for (std::int64_t i = 0; i < plan.tokens_per_step(); ++i) {
          tokens.push_back(static_cast<std::int32_t>(i * i % 61));
          targets.push_back(static_cast<std::int32_t>((i + 1) * 7 % 61));
          if (documents) starts.push_back(i % 16 < 8 ? 0 : 8);
        }
        loss = *engine.evaluate(tokens, targets, static_cast<double>(plan.tokens_per_step()), starts);
      });
      return loss;
    };
    const double halves = loss_of(8, false), documents = loss_of(16, true), whole = loss_of(16, false);
    EXPECT_NEAR(documents, halves, 1e-6 * halves) << model.name();
    EXPECT_GT(std::abs(whole - halves), 1e-4 * halves) << model.name() << ": nothing is hidden";
  }
}

TEST(ModelBits, WindowOfTheWholeSequenceChangesNothing) {
  for (const Model& model : kModels) {
    if (model.window > 0) continue;
    for (const char* dtype : {"fp32", "bf16"}) {
      train::Settings settings = with(settings_of(model), Layout{.tp = 2});
      settings.train.dtype = dtype;
      const Outcome none = run_threads(settings, 2);
      settings.model.window = settings.model.seq;
      expect_same_bits(none, run_threads(settings, 2), model.name() + dtype);
      settings.model.window = settings.model.seq - 1;
      EXPECT_NE(none.losses, run_threads(settings, 2).losses) << model.name() << dtype;
    }
  }
}

// Matrices of one row: a projection to one feature, a stream of one channel.
TEST(ModelShapes, MatricesOfOneRow) {
  for (const auto& [family, hidden] : {std::pair{"gpt", 1}, {"gpt", 64}, {"llama", 2}, {"llama", 64}}) {
    train::Settings settings = tiny_settings(family);
    settings.model.layers = 2;
    settings.model.hidden = hidden;
    settings.model.ffn_hidden = 1;
    settings.model.heads = hidden == 64 ? 16 : 1;
    settings.model.kv_heads = std::string_view(family) == "llama" ? 1 : 0;
    const Outcome one = run_threads(settings, 2);
    EXPECT_NEAR(one.losses[0], std::log(61.0), 0.5) << family << hidden;
    const Outcome other = run_threads(with(settings, Layout{.dp = 2, .pp = 2, .zero = 2}), 2);
    EXPECT_LE(distance(one.gradients, other.gradients).value, 1e-5) << family << hidden;
  }
}

TEST(ModelBits, RecomputationChangesNothing) {
  for (const Model& model : kModels) {
    train::Settings settings = with(settings_of(model), Layout{.tp = 2, .pp = 2});
    settings.train.dtype = "bf16";
    const Outcome kept = run_threads(settings, 3);
    for (const char* recompute : {"selective", "full"}) {
      settings.train.recompute = recompute;
      expect_same_bits(kept, run_threads(settings, 3), model.name() + " " + recompute);
    }
  }
}

TEST(ModelBits, DoNotDependOnThePipeline) {
  for (const Model& model : kModels) {
    if (model.window == 0) continue;
    train::Settings settings = settings_of(model);
    settings.optim.clip = 0;
    const Outcome one = run_threads(with(settings, Layout{.tp = 2}), 3);
    expect_same_bits(one, run_threads(with(settings, Layout{.tp = 2, .pp = 4, .chunks = 2}), 3), model.name());
    const Variant split{.name = "", .layout = {.tp = 2, .pp = 4}, .schedule = "zb-h1"};
    expect_same_bits(one, run_threads(with(settings, split), 3), model.name() + " zb-h1");
  }
}

// A parallel block has fewer parameters and different results.
TEST(ModelBits, ParallelBlockDiffersFromSequentialBlock) {
  for (const std::string family : {"gpt", "llama"}) {
    const Outcome serial = run_threads(tiny_settings(family), 1);
    const Outcome parallel = run_threads(settings_of({family.c_str(), true, 0}), 1);
    EXPECT_NE(serial.losses, parallel.losses);
    EXPECT_EQ(serial.parameters.size() - parallel.parameters.size(), family == "gpt" ? 16U : 8U);
  }
}

}  // namespace
}  // namespace ms::testing_case
