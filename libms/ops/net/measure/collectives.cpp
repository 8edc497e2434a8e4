#include "net/measure/collectives.h"

#include <array>

#include "base/error.h"

namespace ms::net {
namespace {

constexpr std::array<std::string_view, kCollectives> kNames{"all_reduce", "all_gather", "reduce_scatter",
                                                            "all_to_all", "broadcast",  "send_recv"};

}  // namespace

std::string_view to_string(Collective collective) { return kNames[static_cast<std::size_t>(collective)]; }

Collective parse_collective(const std::string& text) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == text) return static_cast<Collective>(i);
  throw user_error("cli.value", fmt::format("'{}' is not one of all_reduce, all_gather, reduce_scatter, all_to_all, "
                                            "broadcast, send_recv",
                                            text));
}

double bus_factor(Collective collective, int ranks) {
  const double n = ranks;
  switch (collective) {
    case Collective::all_reduce: return 2 * (n - 1) / n;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::all_to_all: return (n - 1) / n;
    case Collective::broadcast:
    case Collective::send_recv: break;
  }
  return 1;
}

Split world_split(int ranks) {
  Split split{.name = "world", .groups = {{}}};
  for (int rank = 0; rank < ranks; ++rank) split.groups[0].push_back(rank);
  return split;
}

std::vector<Split> rail_split(int ranks, int ranks_on_node) {
  if (ranks_on_node < 2 || ranks % ranks_on_node != 0 || ranks == ranks_on_node) return {};
  Split split{.name = "rail", .groups = std::vector<std::vector<int>>(static_cast<std::size_t>(ranks_on_node))};
  for (int rank = 0; rank < ranks; ++rank) split.groups[static_cast<std::size_t>(rank % ranks_on_node)].push_back(rank);
  return {split};
}

std::vector<Split> mesh_splits(const mesh::Mesh& mesh) {
  std::vector<Split> splits;
  for (const mesh::Axis axis : {mesh::Axis::tp, mesh::Axis::dp, mesh::Axis::pp}) {
    if (mesh.size(axis) < 2) continue;
    Split split{.name = std::string(to_string(axis)), .groups = {}};
    for (int rank = 0; rank < mesh.size(); ++rank) {
      std::vector<int> group = mesh.along(axis, rank);
      if (group.front() == rank) split.groups.push_back(std::move(group));
    }
    splits.push_back(std::move(split));
  }
  return splits;
}

}  // namespace ms::net
