// Which of several ranks did other than it should: by what the members of its group called, by what the same groups
// elsewhere in the mesh called, by the order in which other ranks do things. Ranks of one stage run the same program.
// Called by hang_blame.cpp.
#pragma once

#include <optional>
#include <vector>

#include "tracepp/hang_graph.h"

namespace ms::tracepp {

struct Difference {
  std::uint32_t sequence = 0;
};
// The first operation of a group, of those that are kept, that two members called for different things; nullopt: none.
std::optional<Difference> first_difference(const HangScan& scan, std::int32_t group, int one, int other);

struct OddOnes {
  std::vector<int> odd;  // ranks; all that differ from each other where nothing tells who is right
  int reference = -1;    // a rank to compare them with
  bool decided = false;
};
// `asked`: these members at least; empty: all that the operation shows.
OddOnes odd_ones(const HangScan& scan, const StuckOp& op, std::uint32_t sequence, const std::vector<int>& asked);

// How `odd` differs from `reference` in an operation of a group.
Reason reason_of(const HangScan& scan, std::int32_t group, std::uint32_t sequence, int odd, int reference);

// A rank that is in one operation while others wait for it in another, in a circle of waits.
struct OrderBreak {
  std::size_t rank = 0;       // its place in the scan
  int in = -1, skipped = -1;  // in HangGraph::ops
  int waiter = -1;            // a rank that waits in `skipped`
  Reason reason = Reason::wrong_order;
  bool decided = false;
};
// The ranks of a circle that broke the order; all of them, undecided, where nothing tells.
std::vector<OrderBreak> order_breaks(const HangScan& scan, const HangGraph& graph, const HangRoot& root);

}  // namespace ms::tracepp
