// The results of a replay: a row per scheduler, as a table or as JSON.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "loan/replay.h"

namespace ms::loan {

struct Summary {
  double mean_s = 0;
  double p95_s = 0;
};
// The mean, and the least value that 95 % of them do not exceed.
Summary summary_of(std::vector<double> values);

std::string replay_table(const JobTrace& trace, const Policy& policy, std::span<const Outcome> outcomes);
Json replay_json(const JobTrace& trace, const Policy& policy, std::span<const Outcome> outcomes);
// CSV: scheduler, time_s and the members of Sample, every kSample_s.
std::string samples_csv(const JobTrace& trace, std::span<const Outcome> outcomes);

}  // namespace ms::loan
