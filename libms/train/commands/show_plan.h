// The plan for people and for programs. Pure.
#pragma once

#include <string>

#include "train/plan.h"

namespace ms::train {

std::string plan_text(const Plan& plan);
// One document: {"schema":1, "mesh":.., "stages":[..], "schedule":.., "overlap":.., "memory":.., "flops_per_token":..}.
std::string plan_json(const Plan& plan);

}  // namespace ms::train
