// How long messages take between the ranks of a cluster, apart from who else is on the wire: a latency for every hop,
// and bytes at the rate of the slowest link that a ring over the members passes. Rank r runs on node r / node.ranks;
// nodes stand under leaf switches in order. Pure.
#pragma once

#include <span>
#include <string>

#include "cost/cluster.h"

namespace ms::cost {

// Where the members of a group meet: what the longest hop of its ring crosses.
enum class Meet : std::uint8_t { node, leaf, spine };

// What a message of a group passes.
struct Path {
  Meet meet = Meet::node;
  double hop_s = 0;  // latency of its longest hop
  // Of a ring over the members, one way. Beyond the node, members on one node bring a network card each, and the ring
  // uses all of them; the node with the fewest decides, or the links inside the nodes.
  double bytes_per_s = 0;
};
// Throws Error("cluster.link", user) where the cluster has no link for a group; `what` names it there.
Path path_of(const Cluster& cluster, std::span<const int> ranks, std::string_view what);

enum class Collective : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, point_to_point, barrier };

// Of an operation on `bytes` (the whole, where members have parts) by `members`, as rings do it: what each member's
// link carries, and the hops that follow each other. Barriers, broadcasts, and what has parts so small that a ring
// would be latency alone, go along trees instead: log2 n hops, twice that for a sum that all need.
struct Traffic {
  double bytes = 0;
  double latency_s = 0;
};
Traffic traffic_of(Collective kind, double bytes, int members, const Path& path);

}  // namespace ms::cost
