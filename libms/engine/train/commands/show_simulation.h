// A simulated step for people and for programs. Pure.
#pragma once

#include <string>

#include "train/simulate/simulate.h"

namespace ms::train {

// `tokens`: of the whole run, for how long it takes; 0: not asked.
std::string simulation_text(const Plan& plan, const cost::Cluster& cluster, const Simulation& simulation,
                            double tokens);
// {"schema":1,"world":..,"iteration_s":..,"tokens_per_s":..,"mfu":{"gemm":..,"causal":..,"full":..,"reported":..},
//  "parts_s":{..},"bubble":..,"stages":[{"memory_bytes":..,"busy_s":..,"expert_load":..,"seconds":{..}}],
//  "days":..}
std::string simulation_json(const Plan& plan, const cost::Cluster& cluster, const Simulation& simulation,
                            double tokens);

}  // namespace ms::train
