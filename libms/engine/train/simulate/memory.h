// Whether a model fits the devices of a cluster, and which other settings would. Pure.
#pragma once

#include "cost/cluster.h"
#include "train/plan.h"

namespace ms::train {

// The stage whose ranks need most memory.
struct StageMemory {
  int pp = 0;
  std::int64_t bytes = 0;  // of a rank
};
StageMemory largest_stage(const Plan& plan);

// Throws Error("simulate.memory", user) where the largest stage does not fit, with settings that would.
void require_memory(const Plan& plan, const cost::Cluster& cluster);

}  // namespace ms::train
