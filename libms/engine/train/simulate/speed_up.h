// How fast a run would be with each data-parallel size that its configuration allows, by simulation. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/cluster.h"
#include "train/config.h"

namespace ms::train {

struct SpeedUp {
  std::int64_t dp = 0, ranks = 0;
  double iteration_s = 0, tokens_per_s = 0;  // 0 with a problem
  std::string problem = {};                  // why it cannot run: too little memory, most likely
};
std::vector<SpeedUp> speed_ups(const Settings& settings, const std::vector<std::int64_t>& sizes,
                               const cost::Cluster& cluster);

std::string speed_up_text(const std::vector<SpeedUp>& rows);
// {"schema":1,"device":..,"speed_up":[{"dp":..,"ranks":..,"iteration_s":..,"tokens_per_s":..} or {..,"problem":..}]}
std::string speed_up_json(const std::vector<SpeedUp>& rows, const cost::Cluster& cluster);
// The columns that ms-loan reads as jobs.curves: num_replicas (ranks), local_bsz (tokens of a rank's step), step_time.
// Error("simulate.memory", user): no size can run.
std::string speed_up_csv(const std::vector<SpeedUp>& rows);

}  // namespace ms::train
