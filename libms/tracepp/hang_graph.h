// Who waits for whom: ranks wait in operations, operations wait for the members that are not ready. What all of it
// leads to are the roots: a rank or an operation that waits for nobody, or ranks that wait for each other. Made by
// hang.cpp; hang_blame.cpp says what is wrong with a root.
#pragma once

#include <vector>

#include "tracepp/hang_scan.h"

namespace ms::tracepp {

struct HangRoot {
  std::vector<std::size_t> ranks;  // places in the scan
  std::vector<int> absent;         // ranks without a trace
  std::vector<int> ops;            // in HangGraph::ops
  std::size_t behind = 0;          // ranks that wait for it, directly or not
};

struct HangGraph {
  std::vector<StuckOp> ops;
  std::vector<std::vector<int>> holds;  // by place in the scan: the operations that hold it up
  std::vector<int> held;                // by operation: how many ranks it holds up
  std::vector<HangRoot> roots;          // those that most ranks wait for first
};

HangGraph make_hang_graph(const HangScan& scan);

bool is_mismatch(Match match);

}  // namespace ms::tracepp
