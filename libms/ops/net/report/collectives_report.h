// Reports on a check of collectives: findings, a table, JSON. Pure functions of results.
#pragma once

#include <string>
#include <vector>

#include "base/finding.h"
#include "net/measure/collectives.h"

namespace ms::net {

// Returns findings for wrong elements; for groups that take more than twice as long as the median one of their split;
// for less bus bandwidth than nine tenths of `least_bus_gbs`, on the average of the largest size of each collective
// (0: not judged).
std::vector<Finding> judge_collectives(const std::vector<CollectiveRow>& rows, double least_bus_gbs);

std::string collectives_text(const std::vector<CollectiveRow>& rows);
std::string collectives_json(const std::vector<CollectiveRow>& rows, const std::vector<Finding>& findings,
                             const std::vector<std::string>& not_run);

}  // namespace ms::net
