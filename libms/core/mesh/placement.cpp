// Three steps. Cells: every host is split into as many whole tp groups as it takes; only where these do not suffice are
// cells made of what is left on several hosts, under switches as low as they can be. Stages: the dp cells of a stage go
// into the lowest switch with room for all of them, the one that wastes least; in it they fill whole children, largest
// first. Order: stages by their place in a walk of the tree, so that neighbours in the pipeline are near.
#include "mesh/placement.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "mesh/switch_tree.h"

namespace ms::mesh {
namespace {

Order as_listed(const Cluster& cluster, int ranks) {
  Order order;
  for (std::size_t h = 0; h < cluster.hosts.size() && std::ssize(order) < ranks; ++h) {
    const int slots = std::min(cluster.hosts[h].slots, ranks - static_cast<int>(order.size()));
    order.insert(order.end(), static_cast<std::size_t>(slots), static_cast<int>(h));
  }
  return order;
}

Score score_in(const SwitchTree& tree, const Mesh& mesh, int chunks, const Order& order) {
  const auto axis_score = [&](Axis axis) {
    const std::size_t levels = static_cast<std::size_t>(tree.levels());
    AxisScore out{.groups = std::vector<std::int64_t>(levels), .pairs = std::vector<std::int64_t>(levels)};
    const int size = mesh.size(axis);
    const int step = axis == Axis::tp ? 1 : axis == Axis::dp ? mesh.tp : mesh.tp * mesh.dp;
    const bool closed = size > 2 && (axis != Axis::pp || chunks > 1);
    for (int first = 0; first < mesh.size(); ++first) {
      if (first / step % size != 0) continue;  // not the first of its group
      const auto host = [&](int i) { return order[static_cast<std::size_t>(first + i * step)]; };
      int widest = 0;
      for (int i = 0; i + 1 < size; ++i) {
        const int level = tree.meet(host(i), host(i + 1));
        ++out.pairs[static_cast<std::size_t>(level)];
        widest = std::max(widest, level);
      }
      if (closed) ++out.pairs[static_cast<std::size_t>(tree.meet(host(size - 1), host(0)))];
      ++out.groups[static_cast<std::size_t>(widest)];
    }
    return out;
  };
  return {.tp = axis_score(Axis::tp), .dp = axis_score(Axis::dp), .pp = axis_score(Axis::pp)};
}

}  // namespace

Score score(const Cluster& cluster, const Mesh& mesh, int chunks, const Order& order) {
  MS_ASSERT(std::ssize(order) == mesh.size(), "an order of {} for {} ranks", order.size(), mesh.size());
  return score_in(SwitchTree(cluster), mesh, chunks, order);
}

bool better(const Score& a, const Score& b) {
  if (a.tp.groups.front() != b.tp.groups.front()) return a.tp.groups.front() > b.tp.groups.front();
  for (const AxisScore Score::*axis : {&Score::tp, &Score::dp, &Score::pp}) {
    const std::vector<std::int64_t>&x = (a.*axis).pairs, &y = (b.*axis).pairs;
    for (std::size_t level = x.size(); level-- > 1;) {
      if (x[level] != y[level]) return x[level] < y[level];
    }
  }
  return false;
}

Placement place(const Cluster& cluster, const Mesh& mesh, int chunks) {
  const std::int64_t slots = std::accumulate(cluster.hosts.begin(), cluster.hosts.end(), std::int64_t{0},
                                             [](std::int64_t sum, const Host& host) { return sum + host.slots; });
  if (slots < mesh.size()) {
    throw user_error("mesh.slots",
                     fmt::format("{} hosts have {} slots, but tp {} x dp {} x pp {} takes {}", cluster.hosts.size(),
                                 slots, mesh.tp, mesh.dp, mesh.pp, mesh.size()),
                     "add hosts, or slots=N after a host (default: 1 slot)");
  }
  SwitchTree whole(cluster);
  Placement best{.order = as_listed(cluster, mesh.size()), .score = {}, .listed = {}};
  best.listed = best.score = score_in(whole, mesh, chunks, best.order);
  whole.cut(cluster, mesh.tp, std::int64_t{mesh.dp} * mesh.pp);

  const auto consider = [&](const std::vector<std::vector<Cell>>& stages) {
    Order order;
    for (const auto& cells : stages) {
      for (const Cell& cell : cells) order.insert(order.end(), cell.begin(), cell.end());
    }
    Score score = score_in(whole, mesh, chunks, order);
    if (!better(score, best.score)) return;
    best = {.order = std::move(order), .score = std::move(score), .listed = std::move(best.listed), .changed = true};
  };
  consider({whole.walk(mesh.dp * mesh.pp)});
  // Within the smallest part of the network that takes the job, so that all of it is near; and anywhere, because there
  // dp groups may fit better.
  for (const int within : {whole.smallest_with(mesh.dp * mesh.pp), whole.root()}) {
    SwitchTree tree = whole;
    consider(tree.fill(within, mesh.pp, mesh.dp));
  }
  return best;
}

}  // namespace ms::mesh
