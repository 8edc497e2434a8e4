#include "clos/step_flows.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "mesh/mesh.h"

namespace ms::clos {
namespace {

constexpr std::int64_t kMostPairs = 1 << 22;

class Flows {
 public:
  Flows(const mesh::MeshConfig& config, const Fabric& fabric)
      : mesh_(mesh::make_mesh(config.dp, config.pp, config.tp, config.ranks(), config.ep, config.cp, config.expert_tp)),
        ranks_(static_cast<int>(fabric.host.ranks)),
        ranks_per_nic_(static_cast<int>(fabric.host.ranks / fabric.host.nics)),
        leaves_on_rail_(fabric.leaf.rails && fabric.roce.pxn) {}

  StepCollective rings(mesh::Axis axis) const {
    StepCollective all{.axis = std::string(to_string(axis)), .channels = {}};
    each_group(axis, [&](const std::vector<int>& group) { add_rings(group, all.channels); });
    return all;
  }

  StepCollective all_to_alls(mesh::Axis axis) const {
    StepCollective all{.axis = std::string(to_string(axis)), .channels = {}};
    const std::int64_t pairs = std::int64_t{mesh_.size()} * (mesh_.size(axis) - 1);
    if (pairs > kMostPairs) {
      throw user_error("fabric.size", fmt::format("{} pairs of ranks in all-to-alls of {}: at most {} are planned",
                                                  pairs, all.axis, kMostPairs));
    }
    each_group(axis, [&](const std::vector<int>& group) {
      Channel channel;
      for (const int from : group)
        for (const int to : group)
          if (node(from) != node(to)) channel.transfers.push_back(direct(from, to));
      if (!channel.transfers.empty()) all.channels.push_back(std::move(channel));
    });
    return all;
  }

  // Each rank to the rank of the next stage; with chunks, also from the last stage to the first.
  StepCollective pipeline(bool is_ring) const {
    StepCollective all{.axis = "pp", .channels = {}};
    for (int rank = 0; rank < mesh_.size(); ++rank) {
      mesh::Coord next = mesh_.coord(rank);
      if (mesh_.pp == 1 || (next.pp == mesh_.pp - 1 && !is_ring)) continue;
      next.pp = (next.pp + 1) % mesh_.pp;
      const int to = mesh_.rank(next);
      if (node(rank) != node(to)) all.channels.push_back({{direct(rank, to)}});
    }
    return all;
  }

 private:
  int node(int rank) const { return rank / ranks_; }
  int nic(int rank) const { return rank % ranks_ / ranks_per_nic_; }
  Transfer direct(int from, int to) const {
    return {
        .from_node = node(from), .from_nic = nic(leaves_on_rail_ ? to : from), .to_node = node(to), .to_nic = nic(to)};
  }

  bool is_first(mesh::Axis axis, const mesh::Coord& at) const {
    switch (axis) {
      case mesh::Axis::tp: return at.tp == 0;
      case mesh::Axis::dp: return at.dp == 0;
      case mesh::Axis::pp: return at.pp == 0;
      case mesh::Axis::ep: return mesh_.ep_rank(at) == 0;
      case mesh::Axis::edp: return mesh_.edp_rank(at) == 0;
      case mesh::Axis::cp: return at.dp % mesh_.cp == 0;
    }
    return false;
  }

  template <class F>
  void each_group(mesh::Axis axis, F&& visit) const {
    if (mesh_.size(axis) < 2) return;
    for (int rank = 0; rank < mesh_.size(); ++rank)
      if (is_first(axis, mesh_.coord(rank))) visit(mesh_.along(axis, rank));
  }

  void add_rings(const std::vector<int>& group, std::vector<Channel>& channels) const {
    std::map<int, std::vector<int>> members;  // by node, which come in the order of ranks
    for (const int rank : group) members[node(rank)].push_back(rank);
    if (members.size() < 2) return;
    const std::size_t fewest =
        std::ranges::min_element(members, {}, [](const auto& m) { return m.second.size(); })->second.size();
    for (std::size_t i = 0; i < fewest; ++i) {
      Channel& ring = channels.emplace_back();
      for (auto from = members.begin(); from != members.end(); ++from) {
        const auto to = std::next(from) == members.end() ? members.begin() : std::next(from);
        ring.transfers.push_back({.from_node = from->first,
                                  .from_nic = nic(from->second[i]),
                                  .to_node = to->first,
                                  .to_nic = nic(to->second[i])});
      }
    }
  }

  mesh::Mesh mesh_;
  int ranks_, ranks_per_nic_;
  bool leaves_on_rail_;
};

}  // namespace

std::vector<StepCollective> step_flows(const mesh::MeshConfig& mesh, const Fabric& fabric) {
  const Flows flows(mesh, fabric);
  std::vector<StepCollective> all;
  for (const mesh::Axis axis : {mesh::Axis::tp, mesh::Axis::dp, mesh::Axis::edp}) {
    if (axis == mesh::Axis::edp && mesh.ep == 1 && !mesh.folds_tp()) continue;  // it is dp
    all.push_back(flows.rings(axis));
  }
  all.push_back(mesh.cp_type == "all-to-all" ? flows.all_to_alls(mesh::Axis::cp) : flows.rings(mesh::Axis::cp));
  all.push_back(flows.pipeline(mesh.chunks > 1));
  all.push_back(flows.all_to_alls(mesh::Axis::ep));
  std::erase_if(all, [](const StepCollective& collective) { return collective.channels.empty(); });
  return all;
}

}  // namespace ms::clos
