#include "nn/config.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "mesh/layers.h"

namespace ms::nn {

namespace {

// Calls refuse(key, message) for what is wrong with how ranks share experts.
template <class F>
void check_expert_ranks(const ModelConfig& model, const mesh::MeshConfig& mesh, std::int64_t microbatch, F&& refuse) {
  if (mesh.ep > 1 && model.experts == 0) refuse("mesh.ep", "mesh.ep shares experts, and model.experts is 0");
  if (mesh.expert_tp != 0 && mesh.expert_tp != 1 && mesh.expert_tp != mesh.tp) {
    return refuse("mesh.expert_tp",
                  fmt::format("mesh.expert_tp = {} is neither 1 nor mesh.tp = {}: ranks of tp hold whole experts, or a "
                              "shard of each",
                              mesh.expert_tp, mesh.tp));
  }
  if (!mesh.folds_tp()) {
    if (mesh.dp % mesh.ep != 0)
      refuse("mesh.dp", fmt::format("mesh.dp = {} is not divisible by mesh.ep = {}", mesh.dp, mesh.ep));
    return;
  }
  if (model.experts == 0) return refuse("mesh.expert_tp", "mesh.expert_tp is of experts, and model.experts is 0");
  if (model.shared_ffn() % mesh.tp != 0) {
    refuse("model.shared_experts",
           fmt::format("model.shared_experts x model.expert_ffn_hidden = {} is not divisible by "
                       "mesh.tp = {}",
                       model.shared_ffn(), mesh.tp));
  }
  if (mesh.expert_ranks() % mesh.ep != 0) {
    refuse("mesh.dp",
           fmt::format("mesh.dp x mesh.tp = {} x {} is not divisible by mesh.ep = {}", mesh.dp, mesh.tp, mesh.ep));
  } else if (mesh.ep % mesh.tp != 0 && mesh.tp % mesh.ep != 0) {
    refuse("mesh.ep", fmt::format("mesh.expert_tp = 1 needs a mesh.ep that divides mesh.tp = {} or is a multiple of "
                                  "it, and it is {}",
                                  mesh.tp, mesh.ep));
  }
  if (!mesh.sequence_parallel && microbatch * (model.seq / mesh.cp) % mesh.tp != 0) {
    refuse("mesh.expert_tp",
           fmt::format("mesh.expert_tp = 1 shares train.microbatch x model.seq = {} x {} tokens out over mesh.tp = {}, "
                       "which does not divide",
                       microbatch, model.seq / mesh.cp, mesh.tp));
  }
}

}  // namespace

std::vector<ModelProblem> check_model(const ModelConfig& model, const mesh::MeshConfig& mesh, std::int64_t microbatch) {
  std::vector<ModelProblem> problems;
  auto refuse = [&](std::string key, std::string message) { problems.push_back({std::move(key), std::move(message)}); };
  auto divides = [&](const char* key, std::int64_t value, std::int64_t parts, const char* why) {
    if (value % parts != 0) refuse(key, fmt::format("{} = {} is not divisible by {} = {}", key, value, why, parts));
  };
  if (model.head_size == 0) divides("model.hidden", model.hidden, model.heads, "model.heads");
  divides("model.heads", model.heads, mesh.tp, "mesh.tp");
  if (model.kv_heads != 0) {
    divides("model.heads", model.heads, model.kv_heads, "model.kv_heads");
    divides("model.kv_heads", model.kv_heads, mesh.tp, "mesh.tp");
  }
  if (model.experts == 0 || model.expert_ffn_hidden == 0 || !model.dense_layers.empty())
    divides("model.ffn_hidden", model.ffn(), mesh.tp, "mesh.tp");
  if (model.experts > 0) {
    divides("model.expert_ffn_hidden", model.expert_ffn(), mesh.expert_shards(), "mesh.tp");
    if (model.experts_per_token > model.experts) {
      refuse("model.experts_per_token", fmt::format("model.experts_per_token = {} is above model.experts = {}",
                                                    model.experts_per_token, model.experts));
    }
    divides("model.experts", model.experts, mesh.ep, "mesh.ep");
    divides("model.experts", model.experts, model.router_groups, "model.router_groups");
    const std::int64_t from = model.experts / model.router_groups * model.router_groups_per_token;
    if (model.router_groups_per_token > model.router_groups ||
        from < std::min(model.experts_per_token, model.experts)) {
      refuse("model.router_groups_per_token",
             fmt::format("model.router_groups_per_token = {} of {} groups have {} experts, which are not enough for "
                         "model.experts_per_token = {}, or are no groups",
                         model.router_groups_per_token, model.router_groups, from, model.experts_per_token));
    }
    if (model.router_groups > 1 && model.experts < 2 * model.router_groups)
      refuse("model.router_groups", "model.router_groups: a group needs two experts, whose scores are summed");
    if (model.shared_expert_gate && model.shared_experts == 0)
      refuse("model.shared_expert_gate", "model.shared_expert_gate needs model.shared_experts");
    if (!model.gated() || model.parallel_block || model.mlp_bias) {
      refuse("model.experts",
             "model.experts needs model.family = \"llama\", model.parallel_block = false and model.mlp_bias = false");
    }
  }
  if (model.experts == 0 && (model.router_bias || model.router_groups > 1))
    refuse(model.router_bias ? "model.router_bias" : "model.router_groups", "without model.experts there is no router");
  if (!model.dense_layers.empty()) {
    const std::string problem = model.experts == 0 ? "without model.experts all layers are dense"
                                                   : layer_list_problem(model.dense_layers, model.layers);
    if (!problem.empty()) refuse("model.dense_layers", fmt::format("model.dense_layers: {}", problem));
    if (problem.empty() && model.dense_layer_count() == model.layers)
      refuse("model.dense_layers", "model.dense_layers leaves no layer for model.experts");
  }
  check_expert_ranks(model, mesh, microbatch, refuse);
  if (mesh.cp > 1) divides("model.seq", model.seq, 2 * mesh.cp, "2 x mesh.cp");
  if (mesh.cp > 1 && mesh.cp_type == "all-to-all" && model.kv() % (mesh.tp * mesh.cp) != 0) {
    refuse(
        "mesh.cp_type",
        fmt::format("all-to-all shares the {} key-value heads over mesh.tp x mesh.cp = {} x {} ranks, which does not "
                    "divide: set mesh.cp_type = \"all-gather\" or \"ring\"",
                    model.kv(), mesh.tp, mesh.cp));
  }
  if (mesh.sequence_parallel && microbatch * (model.seq / mesh.cp) % mesh.tp != 0) {
    refuse("model.seq",
           fmt::format("sequence_parallel splits train.microbatch x model.seq = {} x {} tokens{} over mesh.tp = {},"
                       " which does not divide; or set mesh.sequence_parallel = false",
                       microbatch, model.seq, mesh.cp > 1 ? fmt::format(" / mesh.cp = {}", mesh.cp) : "", mesh.tp));
  }
  const bool derived = model.head_size == 0;
  const char* const size_key = derived ? "model.heads" : "model.head_dim";
  const char* const size_name = derived ? "hidden / heads" : "model.head_dim";
  const bool has_size = !derived || model.hidden % model.heads == 0;
  if (has_size && !model.is_gpt() && model.head_dim() % 2 != 0) {
    refuse(size_key, fmt::format("rotary positions need an even head size, {} = {}", size_name, model.head_dim()));
  }
  if (has_size && (model.rotary() % 2 != 0 || model.rotary() > model.head_dim()) && model.rotary_dim != 0) {
    refuse("model.rotary_dim", fmt::format("model.rotary_dim = {} is not an even number of the {} elements of a head",
                                           model.rotary_dim, model.head_dim()));
  }
  if (has_size && model.head_dim() > 256) {
    refuse(size_key, fmt::format("{} = {}, but attention takes heads of at most 256", size_name, model.head_dim()));
  }
  if (!model.gated() && model.qk_norm) {
    refuse("model.qk_norm",
           fmt::format("model.qk_norm needs model.family = \"llama\"; {} has no RMSNorm", model.family));
  }
  if (model.gated() && model.exact_gelu) {
    refuse("model.exact_gelu", "model.exact_gelu needs model.family = \"gpt\" or \"neox\"; llama has SwiGLU, not GELU");
  }
  for (const auto& [key, is_set] : {std::pair{"model.rotary_scaling", model.rotary_scaling != "none"},
                                    std::pair{"model.rotary_dim", model.rotary_dim != 0}}) {
    if (!model.is_gpt() || !is_set) continue;
    refuse(key, fmt::format("{} needs model.family = \"llama\" or \"neox\"; gpt has learned positions, not rotary ones",
                            key));
  }
  const bool interpolates = model.rotary_scaling == "llama3" || model.rotary_scaling == "yarn";
  if (interpolates && model.rotary_low_freq >= model.rotary_high()) {
    refuse("model.rotary_high_freq",
           fmt::format("model.rotary_high_freq = {} is not above model.rotary_low_freq = {}, as rotary_scaling = "
                       "\"{}\" needs",
                       model.rotary_high(), model.rotary_low_freq, model.rotary_scaling));
  }
  if (model.rotary_scaling == "yarn" && !(model.rotary_low_freq > 0 && model.rotary_base > 1)) {
    refuse("model.rotary_scaling",
           "model.rotary_scaling = \"yarn\" needs model.rotary_low_freq above 0 and model.rotary_base above 1");
  }
  if (model.parallel_block &&
      (model.has_qkv_bias() != model.has_out_bias() || model.has_qkv_bias() != model.has_mlp_bias())) {
    refuse("model.parallel_block",
           "one matmul serves both branches of a parallel block: set all of model.qkv_bias, model.out_bias and"
           " model.mlp_bias, or none");
  }
  if (model.window > model.seq) {
    refuse("model.window",
           fmt::format("model.window = {} is longer than model.seq = {}; 0 means no window", model.window, model.seq));
  }
  const mesh::EndLayers ends{mesh.first_layers, mesh.last_layers};
  if (const auto problem = mesh::layers_problem(model.layers, mesh.pp, mesh.chunks, ends); !problem.empty())
    refuse(ends == mesh::EndLayers{} ? "model.layers" : "mesh.first_layers", problem);
  // Far beyond any machine, and below sizes whose 64-bit arithmetic overflows.
  const double widest = static_cast<double>(std::max(
      {model.hidden, model.ffn(), model.vocab, std::max<std::int64_t>(model.experts, 1) * model.expert_ffn()}));
  const double weights = static_cast<double>(model.layers) * static_cast<double>(model.hidden) * 8.0 * widest;
  const double activations = static_cast<double>(microbatch) * static_cast<double>(model.seq) * widest * 64.0;
  if (weights > 1e17 || activations > 1e17) {
    refuse("model.hidden", "the model is too large to count its bytes: layers x hidden x width, or tokens x width");
  }
  return problems;
}

}  // namespace ms::nn
