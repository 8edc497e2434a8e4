// Which operations of a step wait for which: the dependency model of Lin et al., Understanding Stragglers in Large
// Model Training Using What-if Analysis (arXiv 2505.05713), section 3.2. Pure.
//
// A rank's computations are one chain, and so are its sends and its receives of either direction, each a stream of its
// own. A computation waits for its receive, a send for its computation; parameters are gathered before the first
// forward of their chunk; gradients are reduced after its last backward where that overlaps, else behind everything.
// The step ends with the sums over layer norms, the embedding, all stages (clipping), and the optimizer. Operations of
// one group begin to move data when the last of them has been launched.
//
// Of traces that are exact (step_trace.h) a receive waits for no computation: it is launched ahead. Split backwards are
// part of the chain of computations; the first half sends, the last second half lets the gradients be reduced.
#pragma once

#include <vector>

#include "tracepp/step_trace.h"

namespace ms::tracepp {

struct StepGraph {
  struct Group {
    std::vector<int> ops;
    bool over_dp = false;  // with the same operations of the other dp ranks
  };
  std::vector<std::vector<int>> waits_for;  // [op]
  std::vector<Group> groups;
  std::vector<int> group_of;  // [op]; -1: none, it moves no data between ranks
};

// From the order of things on dp rank 0 in the first step. Throws Error("trace.shape", user) where the operations do
// not make a training step: a transfer without its other side, no optimizer, operations that wait for each other in a
// ring.
StepGraph make_step_graph(const StepTrace& trace);

// Operations and groups in an order in which each comes after all it waits for. A group stands where the last of its
// operations has been launched.
struct StepOrder {
  struct Entry {
    int index;  // of the op, or of the group
    bool is_group;
  };
  std::vector<Entry> entries;
};
StepOrder order_of(const StepGraph& graph);

}  // namespace ms::tracepp
