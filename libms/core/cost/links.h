// How long messages take between the ranks of a cluster, apart from who else is on the wire: a latency for every hop,
// and bytes at the rate of the slowest link that a ring over the members passes. Rank r runs on node r / node.ranks;
// nodes stand under leaf switches in order. Pure.
#pragma once

#include <span>

#include "cost/cluster.h"

namespace ms::cost {

// Where the members of a group meet: what the longest hop of its ring crosses.
enum class Meet : std::uint8_t { node, leaf, spine };

// The slowest part of the route of a group's transfers.
struct Path {
  Meet meet = Meet::node;
  double hop_s = 0;  // latency of its longest hop
  // The rate of a ring over the members, in one direction. Between nodes the ring uses one network card for each member
  // on a node. The node with the fewest members limits the rate, or the links inside the nodes if those are slower.
  double bytes_per_s = 0;
  // The rate at which a member sends its pieces of an all-to-all. Those to other nodes pass the member's own card.
  double pieces_per_s = 0;
};
// `network_share`: of network.rate, what collisions with flows of other groups leave. Throws Error("cluster.link",
// user) where the cluster has no link for a group; `what` names it there.
Path path_of(const Cluster& cluster, std::span<const int> ranks, std::string_view what, double network_share = 1);

enum class Collective : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  point_to_point,
  barrier
};

// The load of one collective on `bytes` (the whole, if members hold shards) by `members` ranks: the bytes that each
// member's link carries, and the latency of the hops in sequence. Collectives run as rings, except
// an all-to-all, whose members send to all others at once. Barriers, broadcasts and
// collectives whose shards are so small that a ring is bound by latency take log2 n hops of a tree instead, all-reduces
// and barriers twice that.
struct Traffic {
  double bytes = 0;
  double latency_s = 0;
  double transfer_s = 0;  // of the bytes, if no other collective uses the links
};
Traffic traffic_of(Collective kind, double bytes, int members, const Path& path);

}  // namespace ms::cost
