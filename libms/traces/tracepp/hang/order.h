// Finds which of several ranks deviated: from the calls of the members of its group, the calls of the same groups
// elsewhere in the mesh, and the order in which other ranks issue operations. Ranks of one stage run the same program.
// Called by blame.cpp.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "tracepp/hang/graph.h"

namespace ms::tracepp {

struct Difference {
  std::uint32_t sequence = 0;
};
// Returns the first operation of a group, of those that are kept, which two members called differently; nullopt: none.
std::optional<Difference> first_difference(const HangScan& scan, std::int32_t group, int one, int other);

// Returns the first operations that two members called differently among those with higher numbers, by group; groups
// without one are left out. `behind`: the numbers by group.
std::map<std::int32_t, std::uint32_t> next_differences(const HangScan& scan,
                                                       const std::map<std::int32_t, std::uint32_t>& behind);

struct OddOnes {
  std::vector<int> odd;      // ranks; all that differ from each other if it is not known which is right
  std::vector<int> against;  // by odd one: a rank that called something else, to compare it with
  int reference = -1;        // a rank to compare the first one with
  bool decided = false;
  bool is_close = false;  // members whose calls are not known could outvote the majority
};
// `asked`: at least these members; empty: all members of the operation.
OddOnes odd_ones(const HangScan& scan, const StuckOp& op, std::uint32_t sequence, const std::vector<int>& asked);

struct Deviation {
  Reason reason = Reason::wrong_order;
  std::size_t calls =
      0;  // left out or made too many, or 1 that changed places with the next; 0: later calls do not tell
};
// Returns how `odd` differs from `reference` in an operation of a group.
Deviation deviation_of(const HangScan& scan, std::int32_t group, std::uint32_t sequence, int odd, int reference);

// A rank in a cycle of waits: it is in one operation while others wait for it in another.
struct OrderBreak {
  std::size_t rank = 0;       // its index in the scan
  int in = -1, skipped = -1;  // in HangGraph::ops
  int waiter = -1;            // a rank that waits in `skipped`
  Reason reason = Reason::wrong_order;
  bool decided = false;
};
// Returns the ranks of a cycle that broke the order; all of them, undecided, if nothing shows it.
std::vector<OrderBreak> order_breaks(const HangScan& scan, const HangGraph& graph, const HangRoot& root);

}  // namespace ms::tracepp
