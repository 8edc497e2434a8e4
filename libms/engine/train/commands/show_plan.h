// The plan for people and for programs. Pure.
#pragma once

#include <optional>
#include <string>

#include "cost/mfu.h"
#include "train/plan.h"

namespace ms::train {

// With a device: what its ceilings allow at most.
struct PlanDevice {
  std::string name;
  cost::Ceilings ceilings;
};
// " cp 2 x" of a mesh; empty without context parallelism.
std::string cp_text(const Plan& plan);
std::string plan_text(const Plan& plan, const std::optional<PlanDevice>& device = {});
// One document: {"schema":1, "mesh":.., "stages":[..], "schedule":.., "overlap":.., "memory":.., "flops_per_token":..,
// "roofline":..}, the last with a device.
std::string plan_json(const Plan& plan, const std::optional<PlanDevice>& device = {});

}  // namespace ms::train
