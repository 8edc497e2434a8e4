#include "net/ranks/collectives_run.h"

#include <algorithm>
#include <iterator>

namespace ms::net {
namespace {

std::vector<Split> splits_of(const std::optional<mesh::Mesh>& mesh, int ranks, int ranks_on_node) {
  std::vector<Split> splits{world_split(ranks)};
  std::ranges::move(rail_split(ranks, ranks_on_node), std::back_inserter(splits));
  if (mesh) {
    mesh::make_mesh(mesh->dp, mesh->pp, mesh->tp, ranks);  // refuses one of another size
    std::ranges::move(mesh_splits(*mesh), std::back_inserter(splits));
  }
  return splits;
}

}  // namespace

std::optional<std::vector<CollectiveRow>> check_collectives(const CollectivesRequest& request) {
  std::vector<CollectiveRow> rows;
  const bool speaks = run_ranks(request.ranks, [&](comm::World& world, const RankDevices& devices) {
    std::vector<CollectiveRow> mine = run_collectives(
        world, devices, splits_of(request.mesh, world.size(), world.ranks_on_node()), request.options, request.before);
    if (world.rank() == 0) rows = std::move(mine);
  });
  return speaks ? std::optional(std::move(rows)) : std::nullopt;
}

}  // namespace ms::net
