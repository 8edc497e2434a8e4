#include "optim/matrix_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "optim/muon.h"

namespace ms::optim {
namespace {

// Plans the all-to-all of which member `me` is a part. rows_of(matrix, from) is the rows of a member's piece,
// owner_of(matrix, from) the member that it goes to. Only members [first, last) send.
template <class RowsOf, class OwnerOf>
Exchange plan_exchange(int members, int me, mesh::Range senders, std::size_t matrices, RowsOf&& rows_of,
                       OwnerOf&& owner_of) {
  Exchange exchange;
  exchange.sent.resize(matrices);
  exchange.received.resize(matrices);
  std::vector<std::int64_t> arriving(static_cast<std::size_t>(members));
  std::int64_t received = 0;
  for (int from = static_cast<int>(senders.begin); from < senders.end; ++from) {
    std::vector<std::int64_t> next(static_cast<std::size_t>(members) + 1);  // row to each member
    for (std::size_t i = 0; i < matrices; ++i) {
      const auto to = static_cast<std::size_t>(owner_of(i, from));
      next[to + 1] += rows_of(i, from);
      arriving[to] += rows_of(i, from);
    }
    std::partial_sum(next.begin(), next.end(), next.begin());
    exchange.offsets.insert(exchange.offsets.end(), next.begin(), next.end());
    exchange.rows = std::max(exchange.rows, next.back());
    for (std::size_t i = 0; i < matrices; ++i) {
      const int to = owner_of(i, from);
      const std::int64_t rows = rows_of(i, from);
      if (from == me)
        exchange.sent[i] = std::exchange(next[static_cast<std::size_t>(to)], next[static_cast<std::size_t>(to)] + rows);
      if (to != me || rows == 0) continue;
      exchange.received[i].push_back({from, received});
      received += rows;
    }
  }
  exchange.rows = std::max(exchange.rows, std::ranges::max(arriving));
  return exchange;
}

std::int64_t shard_rows(const OwnedMatrix& matrix) { return Exchange::rows_for(matrix.elements.size()); }

// Plans the exchange over tp of the matrices that `replica` owns.
Exchange plan_over_tp(const std::vector<OwnedMatrix>& matrices, const MatrixPlace& place, int replica) {
  const auto rows_of = [&](std::size_t i, int) { return matrices[i].owner == replica ? shard_rows(matrices[i]) : 0; };
  const auto owner_of = [&](std::size_t i, int from) {
    return matrices[i].tp_owner == OwnedMatrix::kEach ? from : matrices[i].tp_owner;
  };
  return plan_exchange(place.tp, place.tp_rank, {0, place.tp}, matrices.size(), rows_of, owner_of);
}

// The FLOPs of each rank that shares the matrices: by dp rank, then tp rank.
class Loads {
 public:
  explicit Loads(const MatrixPlace& place)
      : flops_(static_cast<std::size_t>(place.dp) * static_cast<std::size_t>(place.tp)) {}

  // Gives each matrix, the largest first, to the rank that has least.
  void share_out(MatrixGroup& group) {
    std::vector<std::size_t> order(group.matrices.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto cost = [&](std::size_t i) {
      return orthogonalize_flops(group.matrices[i].cut.rows, group.matrices[i].cut.cols);
    };
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return cost(a) > cost(b); });
    // The ranks of a replica, which have as many experts each.
    const int width = static_cast<int>(std::ssize(flops_)) / group.replicas;
    for (const std::size_t i : order) {
      OwnedMatrix& matrix = group.matrices[i];
      const bool each = matrix.cut.shards == 1;
      double least = -1;
      for (int replica = 0; replica < group.replicas; ++replica) {
        for (int tp = 0; tp < (each ? 1 : group.tp); ++tp) {
          const double load = at(replica * width + tp);
          if (least >= 0 && load >= least) continue;
          least = load, matrix.owner = replica, matrix.tp_owner = each ? OwnedMatrix::kEach : tp;
        }
      }
      for (int rank = matrix.owner * width; rank < (matrix.owner + 1) * width; ++rank)
        if (each || rank % group.tp == matrix.tp_owner) at(rank) += cost(i);
    }
  }

 private:
  double& at(int rank) { return flops_[static_cast<std::size_t>(rank)]; }
  std::vector<double> flops_;
};

void plan_group(MatrixGroup& group, const MatrixPlace& place) {
  const std::vector<OwnedMatrix>& matrices = group.matrices;
  const mesh::Range senders =
      group.broadcasts ? mesh::Range{group.replica, group.replica + 1} : mesh::Range{0, group.replicas};
  group.between_replicas = plan_exchange(
      group.replicas, group.replica, senders, matrices.size(),
      [&](std::size_t i, int from) { return Exchange::rows_for(matrices[i].piece(from).size()); },
      [&](std::size_t i, int) { return matrices[i].owner; });
  if (group.tp == 1) return;
  group.over_tp = plan_over_tp(matrices, place, group.replica);
  for (int replica = 0; replica < group.replicas; ++replica)  // registered memory is carved alike on all of them
    group.over_tp.rows = std::max(group.over_tp.rows, plan_over_tp(matrices, place, replica).rows);
}

}  // namespace

mesh::Range OwnedMatrix::piece(int replica) const {
  return part == 0 ? elements : intersect(elements, {part * replica, part * (replica + 1)});
}

bool MatrixLayout::in_place() const {
  return std::ranges::all_of(groups, [](const MatrixGroup& group) { return group.tp == 1 && group.broadcasts; });
}

MatrixLayout matrix_layout(const OptimConfig& config, const std::vector<SpanLayout>& spans, const MatrixPlace& place) {
  MatrixLayout layout;
  Loads loads(place);
  for (const bool experts : {true, false}) {  // each rank of an ep group has as many, so that its buffers are as large
    MatrixGroup group{.experts = experts, .replicas = place.dp, .replica = place.dp_rank, .tp = place.tp};
    if (experts) group.replicas = place.edp, group.replica = place.edp_rank, group.tp = 1;
    group.broadcasts = config.zero == 0 || group.replicas == 1;
    for (std::size_t s = 0; s < spans.size(); ++s) {
      if (spans[s].experts != experts) continue;
      for (std::size_t p = 0; p < spans[s].params.size(); ++p) {
        const ParamRange& param = spans[s].params[p];
        if (!param.matrix) continue;
        group.matrices.push_back({.span = s,
                                  .param = p,
                                  .elements = {param.begin, param.end},
                                  .cut = param.matrix,
                                  .part = group.broadcasts ? 0 : spans[s].numel / group.replicas});
        const MatrixCut& cut = param.matrix;
        group.tp = std::max(group.tp, cut.shards);
        layout.most_elements = std::max(layout.most_elements, cut.rows * cut.cols);
        layout.longest_short_side = std::max(layout.longest_short_side, std::min(cut.rows, cut.cols));
      }
    }
    if (group.matrices.empty()) continue;
    loads.share_out(group);
    plan_group(group, place);
    layout.groups.push_back(std::move(group));
  }
  return layout;
}

}  // namespace ms::optim
