// Reports on a forecast of collisions. Pure functions of the forecast.
#pragma once

#include <string>
#include <vector>

#include "clos/forecast.h"

namespace ms::net {

struct FabricPlan {
  clos::Fabric fabric;
  mesh::MeshConfig mesh;
  clos::Placement placement = clos::Placement::listed;
  int starts = 1;
  std::vector<clos::CollectiveForecast> forecasts;  // of the fabric as it is; empty: no collective passes the network
  struct Changed {
    clos::Change change;
    std::vector<clos::CollectiveForecast> forecasts;
  };
  std::vector<Changed> changes;
};
// Throws what clos::forecast() throws.
FabricPlan plan_fabric(const clos::Fabric& fabric, const mesh::MeshConfig& mesh, clos::Placement placement, int starts);

std::string plan_text(const FabricPlan& plan);
std::string plan_json(const FabricPlan& plan);

}  // namespace ms::net
