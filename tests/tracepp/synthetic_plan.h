// The plan that all steps of a synthetic run share: the order in which the rows of a pipeline run, and the events that
// they leave. For synthetic.cpp. Pure.
#pragma once

#include <vector>

#include "sched/schedule.h"
#include "tracepp/synthetic.h"

namespace ms::tracepp {

// A row of the schedule, its dependencies, and the places of its events in the step of a rank.
struct SyntheticRow {
  sched::Row row;
  int pp = 0;
  std::vector<int> waits = {};  // nodes
  int peer = -1;                // the other side of a transfer
  std::size_t event = 0;
  bool first_forward = false;  // of its chunk: waits for the parameters
  bool last_backward = false;  // of its chunk: completes the gradients
};

// The same for all dp ranks and steps: an order in which a pipeline's rows can be done.
struct SyntheticPlan {
  std::vector<SyntheticRow> nodes;
  std::vector<int> order;                   // of nodes; of a transfer the side that comes last
  std::vector<std::size_t> events;          // [pp]: of a step
  std::vector<std::size_t> gather, reduce;  // [pp]: the first event of
};

SyntheticPlan make_synthetic_plan(const SyntheticRun& run);
// All ranks and events, without times.
RunTrace describe_run(const SyntheticRun& run, const SyntheticPlan& plan);

int tp_collectives_of(const SyntheticRun& run);  // of a section
// Chunks in the order in which their gradients are complete.
std::vector<int> reduction_order(const SyntheticRun& run);

}  // namespace ms::tracepp
