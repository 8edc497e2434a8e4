#include "ckpt/buddy.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace ms::ckpt {
namespace {

using mesh::Coord;
using mesh::Mesh;
using Keepers = std::vector<std::optional<int>>;

// Looking at more of them would take longer than what is won: with nodes filled in order one of the first few fits.
constexpr std::size_t kMaxSteps = 1024;
constexpr int kMaxShifts = 64;

// Ways along an axis, half of it first, as far from the neighbours as can be; to stay comes last.
std::vector<int> ways(int size) {
  std::vector<int> all;
  for (int i = 0; i < size - 1; ++i) all.push_back(1 + (size / 2 - 1 + i) % (size - 1));
  all.push_back(0);
  return all;
}

// Steps along the axes, those along the most axes first; where one must be given up, tp, whose groups mostly lie within
// a node, goes before dp, and dp before pp.
std::vector<Coord> steps(const Mesh& mesh) {
  std::vector<Coord> all;
  for (int given_up = 0; given_up <= 3; ++given_up) {
    for (const int pp : ways(mesh.pp)) {
      for (const int dp : ways(mesh.dp)) {
        for (const int tp : ways(mesh.tp)) {
          const int stays = (pp == 0 && mesh.pp > 1) + (dp == 0 && mesh.dp > 1) + (tp == 0 && mesh.tp > 1);
          if (stays != given_up) continue;
          all.push_back({.dp = dp, .pp = pp, .tp = tp});
          if (all.size() == kMaxSteps) return all;
        }
      }
    }
  }
  return all;
}

int after_step(const Mesh& mesh, int rank, const Coord& step) {
  const Coord at = mesh.coord(rank);
  return mesh.rank(
      {.dp = (at.dp + step.dp) % mesh.dp, .pp = (at.pp + step.pp) % mesh.pp, .tp = (at.tp + step.tp) % mesh.tp});
}

// In how many axes two ranks differ.
int distance(const Mesh& mesh, int a, int b) {
  const Coord x = mesh.coord(a), y = mesh.coord(b);
  return (x.dp != y.dp) + (x.pp != y.pp) + (x.tp != y.tp);
}

// Ranks node by node, each keeping the copy of the one `shift` places before it. With a shift from the ranks of the
// largest node up to all but so many, nobody lands on its own node; where that node has more than half of the ranks,
// the others keep as many of its copies as they have ranks.
Keepers shifted(const Mesh& mesh, const std::vector<std::string>& nodes) {
  std::map<std::string, std::vector<int>> by_node;
  for (int rank = 0; rank < mesh.size(); ++rank) by_node[nodes[static_cast<std::size_t>(rank)]].push_back(rank);
  std::vector<int> order;
  int largest = 0;
  for (const auto& [node, ranks] : by_node) {
    order.insert(order.end(), ranks.begin(), ranks.end());
    largest = std::max(largest, static_cast<int>(ranks.size()));
  }
  const int n = mesh.size();
  const auto neighbour = [&](int place, int shift) { return order[static_cast<std::size_t>((place + shift) % n)]; };
  int best = largest, best_distance = -1;
  const int room = std::max(0, n - 2 * largest);  // shifts from `largest` to `largest` + room do
  const int stride = room / kMaxShifts + 1;
  for (int shift = largest; shift <= largest + room; shift += stride) {
    int sum = 0;
    for (int place = 0; place < n; ++place) sum += distance(mesh, neighbour(place, 0), neighbour(place, shift));
    if (sum > best_distance) {
      best = shift;
      best_distance = sum;
    }
  }
  Keepers result(static_cast<std::size_t>(n));
  for (int place = 0; place < n; ++place) {
    const auto rank = static_cast<std::size_t>(neighbour(place, 0));
    const int keeper = neighbour(place, best);
    if (nodes[rank] != nodes[static_cast<std::size_t>(keeper)]) result[rank] = keeper;
  }
  return result;
}

}  // namespace

Keepers keepers(const Mesh& mesh, const std::vector<std::string>& nodes) {
  const int n = mesh.size();
  MS_ASSERT(static_cast<int>(nodes.size()) == n, "{} nodes of {} ranks", nodes.size(), n);
  const auto leaves_node = [&](int rank, const Coord& step) {
    return nodes[static_cast<std::size_t>(rank)] != nodes[static_cast<std::size_t>(after_step(mesh, rank, step))];
  };
  for (const Coord& step : steps(mesh)) {
    int rank = 0;
    while (rank < n && leaves_node(rank, step)) ++rank;
    if (rank < n) continue;
    Keepers result;
    for (rank = 0; rank < n; ++rank) result.emplace_back(after_step(mesh, rank, step));
    return result;
  }
  return shifted(mesh, nodes);
}

}  // namespace ms::ckpt
