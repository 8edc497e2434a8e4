// Which rank takes which matrix whole, and how the matrices' parts come to it and back. Pure, and computed by every
// rank alike.
//
// The shards of ZeRO cut matrices anywhere, and tp cuts them by rows or columns. The parts on the members of a group of
// replicas (dp, or edp for experts; of these, a shard group if there are several) go to one of them, which then has the
// matrix as its tp group shares it; its shards go to one rank of that group. Both are an all-to-all of rows of kRow
// elements. Where each replica holds everything (zero 0, or one replica), nothing goes to the owner, and what it has
// computed is broadcast. Experts that a tp rank holds as a whole (mesh.expert_tp = 1) do not go over tp. Owners are
// chosen so that all ranks that share the work have equal FLOPs; what tp replicates, each tp rank computes.
#pragma once

#include <cstdint>
#include <vector>

#include "mesh/range.h"
#include "optim/config.h"
#include "optim/span_layout.h"

namespace ms::optim {

// Where a rank stands among those that share matrices: dp here is the shard group, or all of dp if zero is 0.
struct MatrixPlace {
  int dp = 1, dp_rank = 0;
  int edp = 1, edp_rank = 0;  // if there are spans of experts
  int tp = 1, tp_rank = 0;
};

struct OwnedMatrix {
  std::size_t span = 0, param = 0;  // places in the rank's lists
  mesh::Range elements;             // of the span
  MatrixCut cut;
  std::int64_t part = 0;  // elements of the span that each replica updates; 0: each updates all
  int owner = 0;          // in the group of replicas
  int tp_owner = 0;       // in the tp group; kEach: each rank of its own copy
  static constexpr int kEach = -1;

  mesh::Range piece(int replica) const;  // of the span; may be empty
};

struct Exchange {
  static constexpr std::int64_t kRow = 64;  // elements
  struct Arrival {
    int from = 0;
    std::int64_t row = 0;  // the first one, in what this member receives
  };
  std::vector<std::int32_t> offsets;           // [members,members+1]: Communicator::all_to_all
  std::vector<std::int64_t> sent;              // by matrix: the first row of this member's piece, in what it sends
  std::vector<std::vector<Arrival>> received;  // by matrix: its pieces, if this member is the owner
  std::int64_t rows = 1;                       // of what any member of any such group sends or receives, at most
  static std::int64_t rows_for(std::int64_t elements) { return (elements + kRow - 1) / kRow; }
};

// The matrices of one group of replicas.
struct MatrixGroup {
  std::vector<OwnedMatrix> matrices = {};
  bool experts = false;
  int replicas = 1, replica = 0;
  int tp = 1;               // ranks of tp that share a matrix
  bool broadcasts = false;  // each replica holds everything: `between_replicas` has one member's offsets, this one's
  Exchange between_replicas = {}, over_tp = {};  // over_tp: of the matrices that this replica owns
};

struct MatrixLayout {
  std::vector<MatrixGroup> groups = {};
  std::int64_t most_elements = 0, longest_short_side = 0;  // of a matrix
  bool in_place() const;                                   // no matrix has to be put together
};
MatrixLayout matrix_layout(const OptimConfig& config, const std::vector<SpanLayout>& spans, const MatrixPlace& place);

}  // namespace ms::optim
