#include "nn/config.h"

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
  if (mesh.sequence_parallel) divides("model.seq", microbatch * model.seq, mesh.tp, "mesh.tp (sequence_parallel)");
  if (model.hidden % model.heads == 0 && !model.is_gpt() && model.head_dim() % 2 != 0) {
    refuse("model.heads",
           fmt::format("rotary positions need an even head size, hidden / heads = {}", model.head_dim()));
  }
  if (model.hidden % model.heads == 0 && model.head_dim() > 256) {
    refuse("model.heads",
           fmt::format("hidden / heads = {}, but attention takes heads of at most 256", model.head_dim()));
  }
  if (model.layers < mesh.pp * mesh.chunks) {
    refuse("model.layers", fmt::format("{} layers for {} pipeline stages x {} chunks: every one needs a layer",
                                       model.layers, mesh.pp, mesh.chunks));
  }
  return problems;
}

}  // namespace ms::nn
