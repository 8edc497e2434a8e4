#include "nn/config.h"

#include <algorithm>

#include "base/error.h"

namespace ms::nn {

std::vector<ModelProblem> check_model(const ModelConfig& model, const mesh::MeshConfig& mesh, std::int64_t microbatch) {
  std::vector<ModelProblem> problems;
  auto refuse = [&](std::string key, std::string message) { problems.push_back({std::move(key), std::move(message)}); };
  auto divides = [&](const char* key, std::int64_t value, std::int64_t parts, const char* why) {
    if (value % parts != 0) refuse(key, fmt::format("{} = {} is not divisible by {} = {}", key, value, why, parts));
  };
  divides("model.hidden", model.hidden, model.heads, "model.heads");
  divides("model.heads", model.heads, mesh.tp, "mesh.tp");
  if (model.kv_heads != 0) {
    divides("model.heads", model.heads, model.kv_heads, "model.kv_heads");
    divides("model.kv_heads", model.kv_heads, mesh.tp, "mesh.tp");
  }
  divides("model.ffn_hidden", model.ffn(), mesh.tp, "mesh.tp");
  if (mesh.sequence_parallel && microbatch * model.seq % mesh.tp != 0) {
    refuse("model.seq",
           fmt::format("sequence_parallel splits train.microbatch x model.seq = {} x {} tokens over mesh.tp = {},"
                       " which does not divide; or set mesh.sequence_parallel = false",
                       microbatch, model.seq, mesh.tp));
  }
  if (model.hidden % model.heads == 0 && !model.is_gpt() && model.head_dim() % 2 != 0) {
    refuse("model.heads",
           fmt::format("rotary positions need an even head size, hidden / heads = {}", model.head_dim()));
  }
  if (model.hidden % model.heads == 0 && model.head_dim() > 256) {
    refuse("model.heads",
           fmt::format("hidden / heads = {}, but attention takes heads of at most 256", model.head_dim()));
  }
  if (model.window > model.seq) {
    refuse("model.window",
           fmt::format("model.window = {} is longer than model.seq = {}; 0 means no window", model.window, model.seq));
  }
  if (model.layers < mesh.pp * mesh.chunks) {
    refuse("model.layers", fmt::format("{} layers for {} pipeline stages x {} chunks: every one needs a layer",
                                       model.layers, mesh.pp, mesh.chunks));
  }
  // Far beyond any machine, and below sizes whose 64-bit arithmetic overflows.
  const double widest = static_cast<double>(std::max({model.hidden, model.ffn(), model.vocab}));
  const double weights = static_cast<double>(model.layers) * static_cast<double>(model.hidden) * 8.0 * widest;
  const double activations = static_cast<double>(microbatch) * static_cast<double>(model.seq) * widest * 64.0;
  if (weights > 1e17 || activations > 1e17) {
    refuse("model.hidden", "the model is too large to count its bytes: layers x hidden x width, or tokens x width");
  }
  return problems;
}

}  // namespace ms::nn
