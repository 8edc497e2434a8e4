// The engine against PyTorch: loss, logits' effect, gradients and ten AdamW steps of a small GPT and a small Llama,
// each also with parallel blocks, a window and both, and of Llama's relatives, on one rank and on eight. make_golden.py
// made the numbers; it records how far f32 is from f64 there, which is what the tolerances stand on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "comm/thread_world.h"
#include "training_case.h"

namespace ms::testing_case {
namespace {

constexpr double kLossTolerance = 2e-6;      // relative
constexpr double kNormTolerance = 1e-5;      // relative, of the first step's gradient norm
constexpr double kGradientTolerance = 5e-6;  // relative L2
constexpr double kFinalTolerance = 2e-5;     // relative L2, after ten steps of Adam
constexpr double kRoundings = 5;             // ours in PyTorch's own: processors without AVX-512 come to 2.2
constexpr double kFinalRounding = 2e-6;      // the same of PyTorch's own f32 from its f64: more is no reference

class Golden {
 public:
  explicit Golden(const std::string& name) {
    const std::string base = std::string(MS_GOLDEN_DIR) + "/" + name;
    std::ifstream(base + ".json") >> json;
    std::ifstream file(base + ".bin", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  template <class T>
  const T* array(const std::string& name) const {
    return reinterpret_cast<const T*>(bytes.data() + json["arrays"][name]["offset"].get<std::size_t>());
  }
  Matrices matrices(const std::string& kind) const {
    Matrices result;
    for (const auto& [name, entry] : json["arrays"].items()) {
      if (!name.starts_with(kind + "/")) continue;
      const auto shape = entry["shape"].get<std::vector<std::int64_t>>();
      Matrix matrix{shape.size() == 1 ? 1 : shape[0], shape.back(), {}};
      const float* values = array<float>(name);
      matrix.values.assign(values, values + matrix.rows * matrix.cols);
      result[name.substr(kind.size() + 1)] = std::move(matrix);
    }
    return result;
  }
  nlohmann::json json;
  std::vector<char> bytes;
};

train::Settings settings_of(const Golden& golden) {
  const nlohmann::json& c = golden.json["config"];
  train::Settings settings;
  settings.model.family = c["family"];
  settings.model.layers = c["layers"];
  settings.model.hidden = c["hidden"];
  settings.model.heads = c["heads"];
  settings.model.kv_heads = c["kv_heads"];
  settings.model.ffn_hidden = c["ffn"];
  settings.model.vocab = c["vocab"];
  settings.model.seq = c["seq"];
  settings.model.tied_embeddings = c["tied"];
  settings.model.norm_eps = c["norm_eps"];
  settings.model.parallel_block = c.value("parallel_block", false);
  settings.model.exact_gelu = c.value("exact_gelu", false);
  settings.model.rotary_base = c.value("rotary_base", 10000.0);
  settings.model.window = c.value("window", 0);
  settings.model.head_size = c.value("head_dim", 0);
  settings.model.qkv_bias = c.value("qkv_bias", false);
  settings.model.out_bias = c.value("out_bias", false);
  settings.model.mlp_bias = c.value("mlp_bias", false);
  settings.model.experts = c.value("experts", 0);
  settings.model.experts_per_token = c.value("experts_per_token", 1);
  settings.model.expert_ffn_hidden = c.value("expert_ffn", 0);
  settings.model.shared_experts = c.value("shared_experts", 0);
  settings.model.shared_expert_gate = c.value("shared_expert_gate", false);
  settings.model.router = c.value("router", "softmax");
  settings.model.router_normalized = c.value("router_normalized", true);
  settings.model.router_scale = c.value("router_scale", 1.0);
  settings.model.router_bias = c.value("router_bias", false);
  settings.model.router_groups = c.value("router_groups", 1);
  settings.model.router_groups_per_token = c.value("router_groups_per_token", 1);
  settings.model.dense_layers = nn::layer_list(c.value("dense_layers", std::vector<std::int64_t>{}));
  settings.train.moe_bias_rate = c.value("bias_rate", 0.0);
  settings.train.moe_aux_loss = c.value("aux_loss", 0.0);
  settings.train.moe_z_loss = c.value("z_loss", 0.0);
  settings.train.moe_aux_scope = "sequence";
  settings.model.qk_norm = c.value("qk_norm", false);
  settings.model.rotary_dim = c.value("rotary_dim", 0);
  settings.model.rotary_attention_factor = c.value("rotary_attention_factor", 0.0);
  settings.model.rotary_scaling = c.value("rotary_scaling", "none");
  settings.model.rotary_factor = c.value("rotary_factor", 1.0);
  settings.model.rotary_low_freq = c.value("rotary_low_freq", 1.0);
  settings.model.rotary_high_freq = c.value("rotary_high_freq", 4.0);
  settings.model.rotary_original_seq = c.value("rotary_original_seq", 1);
  settings.train.global_batch = c["batch"];
  settings.train.microbatch = 1;
  settings.train.dtype = "fp32";
  settings.train.steps = c["steps"];
  settings.optim.lr = c["lr"];
  settings.optim.schedule = "constant";
  settings.optim.beta1 = c["beta1"];
  settings.optim.beta2 = c["beta2"];
  settings.optim.eps = c["adam_eps"];
  settings.optim.weight_decay = c["weight_decay"];
  settings.optim.clip = c["clip_norm"];
  return settings;
}

void train_rank(const Golden& golden, const train::Plan& plan, comm::World& world, tensor::Device& device,
                Outcome& outcome) {
  train::Engine engine(plan, world, device);
  const Matrices initial = golden.matrices("init");
  load_parameters(engine, initial);
  const std::int64_t rows = plan.settings.train.global_batch / plan.mesh.dp, seq = plan.settings.model.seq;
  const auto* all = golden.array<std::int32_t>("tokens");
  const bool ignores = golden.json["config"].contains("ignores");
  const auto* marked = ignores ? golden.array<std::int32_t>("targets") : nullptr;
  for (std::int64_t step = 0; step < plan.settings.train.steps; ++step) {
    std::vector<std::int32_t> tokens, targets;
    for (std::int64_t row = rows * engine.at().dp; row < rows * (engine.at().dp + 1) && engine.needs_input(); ++row) {
      const auto* line = all + (step * plan.settings.train.global_batch + row) * (seq + 1);
      tokens.insert(tokens.end(), line, line + seq);
      const auto* own = ignores ? marked + (step * plan.settings.train.global_batch + row) * seq : line + 1;
      targets.insert(targets.end(), own, own + seq);
    }
    std::optional<std::int64_t> num_targets;
    if (ignores) {
      const auto* of_step = marked + step * plan.tokens_per_step();
      num_targets = std::count_if(of_step, of_step + plan.tokens_per_step(), [](std::int32_t id) { return id >= 0; });
    }
    engine.issue_step(step, plan.settings.optim.lr, tokens, targets, {}, {}, std::numeric_limits<float>::infinity(),
                      num_targets);
    const train::StepResult result = engine.finish_step(step);
    if (world.rank() == 0) {
      outcome.losses.push_back(result.loss);
      outcome.norms.push_back(result.grad_norm);
    }
    if (step == 0) collect_gradients(engine, outcome.gradients);
  }
  collect_parameters(engine, outcome.parameters);
}

class PyTorch : public testing::TestWithParam<std::tuple<std::string, std::tuple<int, int, int>>> {};

TEST_P(PyTorch, AgreesOnLossGradientsAndTenSteps) {
  const auto& [name, mesh] = GetParam();
  const Golden golden(name);
  train::Settings settings = settings_of(golden);
  std::tie(settings.mesh.dp, settings.mesh.tp, settings.mesh.pp) = mesh;
  Outcome outcome;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train_rank(golden, plan, world, device, outcome);
  });
  // Adam amplifies the rounding of whoever sums in another order: PyTorch's own f32 is so far from its f64.
  const nlohmann::json& rounding = golden.json["final_rel_l2"];
  double most_rounding = 0;
  for (const auto& [parameter, value] : rounding.items()) most_rounding = std::max(most_rounding, value.get<double>());
  const auto losses = golden.json["losses"].get<std::vector<double>>();
  const auto norms = golden.json["grad_norms"].get<std::vector<double>>();
  ASSERT_EQ(outcome.losses.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    EXPECT_NEAR(outcome.losses[i], losses[i], kLossTolerance * losses[i]) << "step " << i;
    const double tolerance = i == 0 ? kNormTolerance : std::max(kNormTolerance, kRoundings * most_rounding);
    EXPECT_NEAR(outcome.norms[i], norms[i], tolerance * norms[i]) << "step " << i;
  }
  const Distance gradients = distance(golden.matrices("grad"), outcome.gradients);
  EXPECT_LE(gradients.value, kGradientTolerance) << gradients.name;
  for (const auto& [parameter, expected] : golden.matrices("final")) {
    // Noise: a gradient that is zero or passes it, as that of a key's bias may, is no reference.
    const double own = rounding.value(parameter, kFinalRounding + 1);
    if (parameter.ends_with("attn.k.bias") && own > kFinalRounding) continue;
    const Distance final = distance({{parameter, expected}}, {{parameter, outcome.parameters.at(parameter)}});
    EXPECT_LE(final.value, std::max(kFinalTolerance, kRoundings * own)) << parameter;
  }
  EXPECT_EQ(outcome.parameters.size(), golden.matrices("final").size());
}

// Two hundred steps of torch.optim.Muon beside torch.optim.AdamW (make_muon_golden.py).
class TorchMuon : public testing::TestWithParam<std::tuple<std::string, std::tuple<int, int, int>>> {};

TEST_P(TorchMuon, HasThisLossCurve) {
  constexpr double kCurveTolerance = 1e-4;
  const auto& [name, mesh] = GetParam();
  const Golden golden(name);
  train::Settings settings = settings_of(golden);
  std::tie(settings.mesh.dp, settings.mesh.tp, settings.mesh.pp) = mesh;
  settings.optim.name = "muon";
  settings.optim.muon_momentum = golden.json["config"]["momentum"];
  settings.optim.muon_scale = golden.json["config"]["muon_scale"];
  Outcome outcome;
  on_threads(settings, [&](const train::Plan& plan, comm::World& world, tensor::Device& device) {
    train_rank(golden, plan, world, device, outcome);
  });
  const auto losses = golden.json["losses"].get<std::vector<double>>();
  ASSERT_EQ(outcome.losses.size(), losses.size());
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(outcome.losses[i], losses[i], kCurveTolerance) << "step " << i;
}

std::string layout_name(const testing::TestParamInfo<PyTorch::ParamType>& layout) {
  const auto& [dp, tp, pp] = std::get<1>(layout.param);
  return fmt::format("{}_dp{}_tp{}_pp{}", std::get<0>(layout.param), dp, tp, pp);
}

std::vector<std::string> names() {
  std::vector<std::string> names{
      "llama3", "qwen2", "qwen3", "qwen3_parallel_window", "mixtral", "qwen3_moe", "shared_moe", "sigmoid_moe",
      "dots",   "yarn",  "neox",  "neox_serial",           "masked"};
  for (const std::string family : {"gpt", "llama"}) {
    for (const std::string variant : {"", "_parallel", "_window", "_parallel_window"})
      names.push_back(family + variant);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Layouts, PyTorch,
                         testing::Combine(testing::ValuesIn(names()),
                                          testing::Values(std::tuple{1, 1, 1}, std::tuple{2, 2, 2})),
                         layout_name);
INSTANTIATE_TEST_SUITE_P(Layouts, TorchMuon,
                         testing::Combine(testing::Values("muon_gpt", "muon_llama", "muon_original"),
                                          testing::Values(std::tuple{1, 1, 1}, std::tuple{2, 2, 2})),
                         layout_name);

}  // namespace
}  // namespace ms::testing_case
