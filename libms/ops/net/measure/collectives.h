// A check of collectives as it is asked for, and its results. libms/ops/fabric measures them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/mesh.h"
#include "net/measure/ranks.h"

namespace ms::net {

enum class Collective { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_recv };
inline constexpr int kCollectives = 6;
std::string_view to_string(Collective collective);
Collective parse_collective(const std::string& text);  // Error("cli.value", user)

// Bus bandwidth is algorithm bandwidth times this (nccl-tests, doc/PERFORMANCE.md): what the slowest link carries, if
// the algorithm is the best there is. The size of all_gather and reduce_scatter is that of the larger side.
double bus_factor(Collective collective, int ranks);

// The world split into groups of equal size that run the same collective at the same time.
struct Split {
  std::string name;                      // "world", "tp", "rail"
  std::vector<std::vector<int>> groups;  // global ranks
};
Split world_split(int ranks);
// One group for each place on a node: ranks r, r + ranks_on_node, ... share a rail. None where nodes are not alike.
std::vector<Split> rail_split(int ranks, int ranks_on_node);
// tp, dp and pp groups with more than one rank.
std::vector<Split> mesh_splits(const mesh::Mesh& mesh);

struct CollectiveOptions {
  std::vector<Collective> what;
  std::int64_t least_bytes = 1 << 10, most_bytes = 16 << 20;
  int factor = 4;           // from one size to the next
  int iterations = 20;      // that count; a quarter as many before them do not
  double most_seconds = 2;  // of one size; fewer iterations then
};

struct CollectiveRow {
  Collective what = Collective::all_reduce;
  std::string split;
  int groups = 1, ranks = 1;  // ranks of a group
  std::int64_t bytes = 0;
  int iterations = 0;
  double least_s = 0, p50_s = 0, p99_s = 0;  // of iterations, each as long as its slowest rank
  std::int64_t wrong = 0;                    // elements, of all iterations and ranks
  // By group, the middle time of its slowest rank.
  std::vector<double> group_p50_s;

  double algorithm_gbs() const { return static_cast<double>(bytes) * 1e-9 / p50_s; }  // 1e9 bytes a second
  double bus_gbs() const { return algorithm_gbs() * bus_factor(what, ranks); }
};

struct CollectivesRequest {
  RanksRequest ranks = {};
  std::optional<mesh::Mesh> mesh = {};  // its groups are measured, too; it fills the world
  CollectiveOptions options = {};
  std::function<void(const std::string& what)> before = {};
};

}  // namespace ms::net
