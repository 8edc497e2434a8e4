// The wait-for graph: ranks wait in operations, operations wait for the members that are not ready. All waits lead to
// roots: a rank or an operation that waits for nothing, or ranks that wait for each other. Made by hang.cpp; blame.cpp
// judges a root.
#pragma once

#include <vector>

#include "tracepp/hang/scan.h"

namespace ms::tracepp {

inline constexpr std::size_t kHangRoots = 16;  // looked into; a run has one or two faults at a time

struct HangRoot {
  std::vector<std::size_t> ranks;  // indices in the scan
  std::vector<int> absent;         // ranks without a trace
  std::vector<int> ops;            // in HangGraph::ops
  std::size_t behind = 0;          // ranks that wait for it, directly or not
};

struct HangGraph {
  std::vector<StuckOp> ops;
  std::vector<std::vector<int>> holds;  // by index in the scan: the operations that it waits in
  std::vector<int> held;                // by operation: how many ranks wait in it
  std::vector<HangRoot> roots;          // those with the most waiting ranks first
};

// Returns a rank by itself as a root.
inline HangRoot hang_root(std::size_t at) { return {.ranks = {at}, .absent = {}, .ops = {}}; }

HangGraph make_hang_graph(const HangScan& scan);

bool is_mismatch(Match match);
// Returns which of the six states an operation is in, as far as the members' views go.
Match match_of(const StuckOp& op, const RunTrace& trace);

}  // namespace ms::tracepp
