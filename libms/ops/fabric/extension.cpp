// Implements the extension of ms-netcheck (net/commands/extension.h): checks whose ranks talk over MPI or NCCL.
#include "net/commands/extension.h"

#include <algorithm>
#include <iterator>

#include "base/version.h"
#include "fabric/collectives.h"
#include "fabric/rank_workers.h"
#include "train/config.h"

namespace ms::fabric {
namespace {

using net::CollectiveRow;
using net::Split;

std::vector<Split> splits_of(const std::optional<mesh::Mesh>& mesh, int ranks, int ranks_on_node) {
  std::vector<Split> splits{net::world_split(ranks)};
  std::ranges::move(net::rail_split(ranks, ranks_on_node), std::back_inserter(splits));
  if (mesh) {
    mesh::make_mesh(mesh->dp, mesh->pp, mesh->tp, ranks);  // refuses one of another size
    std::ranges::move(net::mesh_splits(*mesh), std::back_inserter(splits));
  }
  return splits;
}

std::optional<std::vector<CollectiveRow>> check_collectives(const net::CollectivesRequest& request) {
  std::vector<CollectiveRow> rows;
  const bool speaks = run_ranks(request.ranks, [&](comm::World& world, const RankDevices& devices) {
    std::vector<CollectiveRow> mine = run_collectives(
        world, devices, splits_of(request.mesh, world.size(), world.ranks_on_node()), request.options, request.before);
    if (world.rank() == 0) rows = std::move(mine);
  });
  return speaks ? std::optional(std::move(rows)) : std::nullopt;
}

mesh::MeshConfig mesh_of(const std::string& config, const std::vector<std::string>& set) {
  return train::load(config, set).settings.mesh;
}

}  // namespace
}  // namespace ms::fabric

extern "C" const ms::net::Extension* ms_netcheck_extension() {
  static const ms::net::Extension kExtension{.version = ms::kVersion,
                                             .collectives = ms::fabric::check_collectives,
                                             .ranks = ms::fabric::check_ranks,
                                             .mesh = ms::fabric::mesh_of};
  return &kExtension;
}
