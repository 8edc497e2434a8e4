#include "train/simulate/fabric_forecast.h"

#include <algorithm>

#include "base/error.h"

namespace ms::train {
namespace {

constexpr int kStarts = 32;

}  // namespace

std::vector<clos::CollectiveForecast> forecast_network(const clos::Fabric& fabric, const Plan& plan,
                                                       const cost::Cluster& cluster) {
  if (fabric.host.ranks != cluster.node.ranks) {
    throw user_error("simulate.fabric",
                     fmt::format("hosts of the fabric file have {} ranks, and nodes of the cluster file {}",
                                 fabric.host.ranks, cluster.node.ranks),
                     "set host.ranks of the one to node.ranks of the other");
  }
  const std::int64_t nodes = (plan.mesh.size() + cluster.node.ranks - 1) / cluster.node.ranks;
  const std::int64_t of_cluster = cluster.network.nodes_per_leaf;
  if (std::min(nodes, fabric.leaf.hosts) != std::min(nodes, of_cluster == 0 ? nodes : of_cluster)) {
    throw user_error("simulate.fabric",
                     fmt::format("leaf switches of the fabric file have {} hosts, and those of the cluster file {}",
                                 fabric.leaf.hosts, of_cluster == 0 ? "all" : std::to_string(of_cluster)),
                     fmt::format("--set-cluster network.nodes_per_leaf={}", fabric.leaf.hosts));
  }
  if (cluster.network.spine_share != 1) {
    throw user_error("simulate.fabric",
                     fmt::format("network.spine_share of the cluster file is {}, which stands for collisions that "
                                 "--fabric computes",
                                 cluster.network.spine_share),
                     "--set-cluster network.spine_share=1");
  }
  mesh::MeshConfig mesh = plan.settings.mesh;
  mesh.cp_type = to_string(plan.shape(0).cp_type);
  return clos::forecast(fabric, mesh, clos::Placement::listed, kStarts);
}

}  // namespace ms::train
