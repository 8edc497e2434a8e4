// Where ranks should run: hosts with slots under a tree of switches in, the host of every rank out. Pure and
// deterministic; ms-train plan --hostfile calls it. Rule: a tp group inside a node, a dp group under the fewest and
// lowest switches, the pipeline over what is left. Ranks are tp fastest, then dp, then pp (mesh.h), so a placement is
// just an order. It is never worse than the order in which the hosts were listed, and is that order where nothing
// better is found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mesh/mesh.h"

namespace ms::mesh {

inline constexpr int kNoSwitch = -1;

struct Switch {
  std::string name;
  int under = kNoSwitch;  // the switch above, or none
};

struct Host {
  std::string name;
  int slots = 0;          // ranks that it takes
  int under = kNoSwitch;  // its switch, or none
};

// Hosts and switches with nothing above them count as joined by a last switch that has no name: with no switches at all
// that is one flat network.
struct Cluster {
  std::vector<Switch> switches;  // no circles
  std::vector<Host> hosts;       // as listed
};

using Order = std::vector<int>;  // index in hosts of every rank, by rank; a host may come up more than once

// Two ranks meet at a level: 0 in the same node, 1 under the same leaf switch, n under a switch with n-1 levels of
// switches below it. A group's level is that of the switch that holds all of it.
struct AxisScore {
  std::vector<std::int64_t> groups;  // by level: groups of the axis
  // By level: neighbours in the ring of a group (tp, dp), or the edges of the pipeline, with the way back from the last
  // stage to the first where chunks are interleaved (pp).
  std::vector<std::int64_t> pairs;
  bool operator==(const AxisScore&) const = default;
};

struct Score {
  AxisScore tp, dp, pp;
  bool operator==(const Score&) const = default;
};

Score score(const Cluster& cluster, const Mesh& mesh, int chunks, const Order& order);
// More tp groups inside a node; then tp before dp before pp, of an axis the pairs at the highest level first.
bool better(const Score& a, const Score& b);

struct Placement {
  Order order;
  Score score;
  Score listed;          // of the hosts as listed, each filled before the next
  bool changed = false;  // `order` is not that order
};

// Throws Error("mesh.slots", user) where the hosts have fewer slots than the mesh has ranks.
Placement place(const Cluster& cluster, const Mesh& mesh, int chunks);

}  // namespace ms::mesh
