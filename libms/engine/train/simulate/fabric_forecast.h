// Collisions of flows in a simulated step: the forecast of a fabric file for the mesh and the nodes of a plan. Pure.
#pragma once

#include <vector>

#include "clos/forecast.h"
#include "cost/cluster.h"
#include "train/plan.h"

namespace ms::train {

// Returns the forecast of every axis that passes the network, of nodes in the order of the ranks. Throws
// Error("simulate.fabric", user) if fabric and cluster file describe different hosts or leaf switches, or both have
// collisions, and what clos::forecast() throws.
std::vector<clos::CollectiveForecast> forecast_network(const clos::Fabric& fabric, const Plan& plan,
                                                       const cost::Cluster& cluster);

}  // namespace ms::train
