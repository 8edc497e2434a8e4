#include "cost/links.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"

namespace ms::cost {

Path path_of(const Cluster& cluster, std::span<const int> ranks, std::string_view what, double network_share) {
  MS_ASSERT(ranks.size() >= 2, "the links of a group of {}", ranks.size());
  const auto per_node = static_cast<int>(cluster.node.ranks);
  const auto [least, most] = std::ranges::minmax(ranks);
  const int first = least / per_node, last = most / per_node;
  Path path;
  if (first == last) {
    if (cluster.node.gb_s <= 0) {
      throw user_error("cluster.link",
                       fmt::format("{} has {} ranks on one node, and the cluster file has no link inside a node", what,
                                   ranks.size()),
                       "node.rate says what a rank can send to ranks of its node, in GB/s");
    }
    path.hop_s = cluster.node.latency_s;
    path.bytes_per_s = path.pieces_per_s = cluster.node.gb_s * 1e9;
    return path;
  }
  if (cluster.network.gb_s <= 0) {
    throw user_error("cluster.link",
                     fmt::format("{} spans nodes {} to {} of {} ranks each, and the cluster file has no link between "
                                 "nodes",
                                 what, first, last, per_node),
                     "network.rate says what a rank's network card can send, in GB/s");
  }
  const std::int64_t leaf = cluster.network.nodes_per_leaf;
  path.meet = leaf > 0 && first / leaf != last / leaf ? Meet::spine : Meet::leaf;
  const bool spine = path.meet == Meet::spine;
  path.hop_s = spine ? std::max(cluster.network.spine_latency_s, cluster.network.latency_s) : cluster.network.latency_s;
  std::map<int, int> members;  // by node
  for (const int rank : ranks) ++members[rank / per_node];
  const auto fewest = std::ranges::min_element(members, {}, [](const auto& node) { return node.second; })->second;
  const bool inside = std::ranges::any_of(members, [](const auto& node) { return node.second > 1; });
  const double card = cluster.network.gb_s * network_share * (spine ? cluster.network.spine_share : 1);
  const double cards = card * fewest;
  path.bytes_per_s = 1e9 * (inside && cluster.node.gb_s > 0 ? std::min(cards, cluster.node.gb_s) : cards);
  // A member sends n - m of n pieces through its card, while those to the m members of its node pass the links inside.
  const auto n = static_cast<double>(ranks.size()), m = static_cast<double>(fewest);
  const double in_node = m > 1 && cluster.node.gb_s > 0 ? (m - 1) / cluster.node.gb_s : 0;
  path.pieces_per_s = 1e9 * (n - 1) / std::max((n - m) / card, in_node);
  return path;
}

Traffic traffic_of(Collective kind, double bytes, int members, const Path& path) {
  const double n = members, others = bytes * (n - 1) / n, tree = std::ceil(std::log2(n));
  const double ring = bytes / n < path.hop_s * path.bytes_per_s ? std::min(n - 1, tree) : n - 1;
  const auto at_ring_rate = [&](double sent, double latency_s) {
    return Traffic{sent, latency_s, sent / path.bytes_per_s};
  };
  switch (kind) {
    case Collective::all_reduce: return at_ring_rate(2 * others, 2 * ring * path.hop_s);
    case Collective::reduce_scatter:
    case Collective::all_gather: return at_ring_rate(others, ring * path.hop_s);
    case Collective::all_to_all: return {others, path.hop_s, others / path.pieces_per_s};
    case Collective::broadcast: return at_ring_rate(bytes, tree * path.hop_s);
    case Collective::point_to_point: return at_ring_rate(bytes, path.hop_s);
    case Collective::barrier: return {0, 2 * tree * path.hop_s, 0};
  }
  return {};
}

}  // namespace ms::cost
