// The dependencies between the operations of a step: the model of Lin et al., Understanding Stragglers in Large Model
// Training Using What-if Analysis (arXiv 2505.05713), section 3.2. Pure.
//
// A rank's computations are one chain, and so are its sends and its receives of either direction, each a stream of its
// own. A computation waits for its receive, a send for its computation; parameters are gathered before the first
// forward of their chunk; gradients are reduced after its last backward if that overlaps, else after everything. The
// step ends with the reductions of layer norms, of the embedding and over all stages (clipping), and the optimizer.
// Operations of one group begin to move data when the last of them has been launched.
//
// In exact traces (step_trace.h) a receive waits for no computation: it is launched ahead. Split backwards are part of
// the chain of computations; the first half sends, and after the last second half the gradients are reduced.
#pragma once

#include <vector>

#include "tracepp/steps/step_trace.h"

namespace ms::tracepp {

struct StepGraph {
  struct Group {
    std::vector<int> ops;
    bool over_dp = false;  // together with the same operations of the other dp ranks
  };
  std::vector<std::vector<int>> waits_for;  // [op]
  std::vector<Group> groups;
  std::vector<int> group_of;  // [op]; -1: none, it moves no data between ranks
};

// Derives the graph from the order of operations on dp rank 0 in the first step. Throws Error("trace.shape", user) if
// the operations do not make a training step: a transfer without its other side, no optimizer, a cycle of operations
// that wait for each other.
StepGraph make_step_graph(const StepTrace& trace);

// Operations and groups in topological order. A group stands where the last of its operations has been launched.
struct StepOrder {
  struct Entry {
    int index;  // index of the op or of the group
    bool is_group;
  };
  std::vector<Entry> entries;
};
StepOrder order_of(const StepGraph& graph);

}  // namespace ms::tracepp
