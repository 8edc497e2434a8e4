#include "comm/rank_gpu.h"

#include "tensor/cuda_plugin.h"

namespace ms::comm {

int gpu_of(const World& world) {
  const int gpus = tensor::cuda_device_count();
  int before = 0;
  for (int rank = 0; rank < world.rank(); ++rank) before += world.node(rank) == world.node(world.rank()) ? 1 : 0;
  if (gpus > 1 && world.ranks_on_node() > gpus) {
    throw Error(
        "cuda.none", Blame::user,
        fmt::format("{} ranks on node {}, which has {} GPUs", world.ranks_on_node(), world.node(world.rank()), gpus),
        "start as many ranks on a node as it has GPUs");
  }
  return gpus > 1 ? before : 0;
}

}  // namespace ms::comm
