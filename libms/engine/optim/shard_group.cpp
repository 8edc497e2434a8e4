#include "optim/shard_group.h"

#include <algorithm>

#include "base/error.h"

namespace ms::optim {

std::int64_t shard_groups(const OptimConfig& config, const mesh::MeshConfig& mesh) {
  const std::int64_t ranks = mesh.dp * mesh.cp;
  if (config.zero == 0) return mesh.folds_tp() ? ranks * mesh.tp : ranks;
  return config.shard_group == 0 ? 1 : ranks / config.shard_group;
}

std::int64_t most_replicas(const OptimConfig& config, const mesh::MeshConfig& mesh) {
  if (config.shard_group > 0) return config.shard_group;
  return std::max(mesh.dp, mesh.expert_ranks() / mesh.ep) * mesh.cp;
}

std::string shard_group_problem(const OptimConfig& config, const mesh::MeshConfig& mesh) {
  const std::int64_t size = config.shard_group, ranks = mesh.dp * mesh.cp;
  if (size == 0 || config.zero == 0) return "";
  if (ranks % size != 0) {
    return fmt::format("optim.shard_group = {} does not divide mesh.dp{} = {}", size, mesh.cp > 1 ? " x mesh.cp" : "",
                       ranks);
  }
  if (size == 1 && ranks > 1) return "a shard group of one rank shards nothing: set optim.zero = 0";
  if (mesh.folds_tp())
    return "optim.shard_group does not work with mesh.expert_tp = 1, whose experts divide over dp x tp";
  for (const auto& [name, block] : {std::pair{"mesh.ep", mesh.ep}, {"mesh.cp", mesh.cp}}) {
    if (size % block != 0 && block % size != 0) {
      return fmt::format("optim.shard_group = {} and {} = {}: one must be a multiple of the other", size, name, block);
    }
  }
  return "";
}

}  // namespace ms::optim
