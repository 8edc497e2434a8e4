// Who keeps whose copy: on other nodes, one each, in other groups where that can be.
#include "ckpt/buddy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace ms::ckpt {
namespace {

using mesh::Coord;
using mesh::Mesh;
using Nodes = std::vector<std::string>;

// Ranks in order, so many on each node.
Nodes filled(const std::vector<int>& ranks_on) {
  Nodes nodes;
  for (std::size_t node = 0; node < ranks_on.size(); ++node) {
    nodes.insert(nodes.end(), static_cast<std::size_t>(ranks_on[node]), "node" + std::to_string(node));
  }
  return nodes;
}

int largest_node(const Nodes& nodes) {
  std::map<std::string, int> count;
  int largest = 0;
  for (const std::string& node : nodes) largest = std::max(largest, ++count[node]);
  return largest;
}

// What must hold whatever the mesh and the nodes are; `what` for messages.
void expect_sound(const Mesh& mesh, const Nodes& nodes, const std::string& what) {
  const auto result = keepers(mesh, nodes);
  ASSERT_EQ(result.size(), nodes.size()) << what;
  std::set<int> seen;
  int alone = 0;
  for (std::size_t rank = 0; rank < result.size(); ++rank) {
    if (!result[rank]) {
      ++alone;
      continue;
    }
    const int keeper = *result[rank];
    ASSERT_TRUE(keeper >= 0 && keeper < mesh.size()) << what;
    EXPECT_NE(nodes[rank], nodes[static_cast<std::size_t>(keeper)]) << what << ", rank " << rank;
    EXPECT_TRUE(seen.insert(keeper).second) << what << ": " << keeper << " keeps two";
  }
  const int n = mesh.size();
  EXPECT_EQ(alone, std::max(0, 2 * largest_node(nodes) - n)) << what;
  EXPECT_EQ(keepers(mesh, nodes), result) << what;
}

TEST(Buddy, EveryMeshOnEveryFillingOfNodes) {
  for (const Mesh& mesh : {Mesh{1, 1, 1}, Mesh{2, 1, 1}, Mesh{3, 1, 1}, Mesh{1, 4, 1}, Mesh{2, 2, 2}, Mesh{3, 2, 2},
                           Mesh{2, 3, 4}, Mesh{5, 1, 3}, Mesh{4, 4, 8}}) {
    const int n = mesh.size();
    for (int on_node = 1; on_node <= n; ++on_node) {
      std::vector<int> ranks_on;
      for (int left = n; left > 0; left -= on_node) ranks_on.push_back(std::min(on_node, left));
      expect_sound(mesh, filled(ranks_on),
                   "dp " + std::to_string(mesh.dp) + " pp " + std::to_string(mesh.pp) + " tp " +
                       std::to_string(mesh.tp) + ", " + std::to_string(on_node) + " on a node");
    }
  }
}

TEST(Buddy, AnyPlacement) {
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    const auto draw = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
    const Mesh mesh{.dp = 1 + draw(4), .pp = 1 + draw(4), .tp = 1 + draw(4)};
    const int count = 1 + draw(6);
    Nodes nodes;
    for (int rank = 0; rank < mesh.size(); ++rank) nodes.push_back("n" + std::to_string(draw(count)));
    expect_sound(mesh, nodes, "placement " + std::to_string(i));
  }
}

TEST(Buddy, OtherGroupsWhereverOneStepOfAllAxesLeavesTheNode) {
  struct Row {
    Mesh mesh;
    int on_node;
    int differs;  // axes in which every rank and its keeper do
  };
  const Row rows[] = {
      {{.dp = 2, .pp = 2, .tp = 2}, 2, 3}, {{.dp = 2, .pp = 2, .tp = 2}, 4, 3}, {{.dp = 4, .pp = 2, .tp = 4}, 8, 3},
      {{.dp = 3, .pp = 3, .tp = 2}, 2, 3}, {{.dp = 4, .pp = 1, .tp = 2}, 2, 2}, {{.dp = 1, .pp = 4, .tp = 1}, 1, 1},
      {{.dp = 6, .pp = 1, .tp = 1}, 3, 1}, {{.dp = 1, .pp = 1, .tp = 8}, 4, 1}, {{.dp = 16, .pp = 8, .tp = 8}, 8, 3},
  };
  for (const Row& row : rows) {
    const Mesh& mesh = row.mesh;
    const auto result =
        keepers(mesh, filled(std::vector<int>(static_cast<std::size_t>(mesh.size() / row.on_node), row.on_node)));
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const Coord a = mesh.coord(rank), b = mesh.coord(result[static_cast<std::size_t>(rank)].value());
      EXPECT_EQ((a.dp != b.dp) + (a.pp != b.pp) + (a.tp != b.tp), row.differs)
          << "dp " << mesh.dp << " pp " << mesh.pp << " tp " << mesh.tp << ", rank " << rank;
    }
  }
}

TEST(Buddy, NodesComeBeforeGroups) {
  // A node for each pp rank: only pp has to differ, and all do.
  const Mesh mesh{.dp = 2, .pp = 2, .tp = 2};
  const auto by_pp = keepers(mesh, {"a", "a", "a", "a", "b", "b", "b", "b"});
  for (int rank = 0; rank < 8; ++rank) EXPECT_EQ(by_pp[static_cast<std::size_t>(rank)], 7 - rank);
  // A node for each tp and dp alike: a step of both leads back to the node, so one of them is given up, tp before dp.
  const auto diagonal = keepers({.dp = 2, .pp = 1, .tp = 2}, {"a", "b", "b", "a"});
  EXPECT_EQ(diagonal, (std::vector<std::optional<int>>{2, 3, 0, 1}));
  // No other node, or not enough of one.
  EXPECT_EQ(keepers({.dp = 2, .pp = 1, .tp = 1}, {"a", "a"}), (std::vector<std::optional<int>>{{}, {}}));
  EXPECT_EQ(keepers({.dp = 3, .pp = 1, .tp = 1}, {"a", "a", "b"}), (std::vector<std::optional<int>>{2, {}, 1}));
}

}  // namespace
}  // namespace ms::ckpt
