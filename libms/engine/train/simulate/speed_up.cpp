#include "train/simulate/speed_up.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "train/plan.h"
#include "train/simulate/simulate.h"

namespace ms::train {

std::vector<SpeedUp> speed_ups(const Settings& settings, const std::vector<std::int64_t>& sizes,
                               const cost::Cluster& cluster) {
  std::vector<SpeedUp> rows;
  for (const std::int64_t dp : sizes) {
    Settings sized = settings;
    sized.mesh.dp = dp;
    SpeedUp& row = rows.emplace_back();
    row.dp = dp;
    row.ranks = dp * settings.mesh.replica_ranks();
    try {
      const Simulation made = simulate(make_plan(sized, static_cast<int>(row.ranks)), cluster, {.parts = false});
      row.iteration_s = made.iteration_s;
      row.tokens_per_s = made.tokens_per_s;
    } catch (const Error& error) {  // of one size: the others may do
      if (error.blame() != Blame::user) throw;
      row.problem = error.message();
    }
  }
  return rows;
}

std::string speed_up_text(const std::vector<SpeedUp>& rows) {
  TextTable table(columns("dp>|ranks>|s a step>|tokens/s>|a rank>"));
  std::string problems;
  for (const SpeedUp& row : rows) {
    if (!row.problem.empty()) {
      problems += fmt::format("dp {} cannot run: {}\n", row.dp, row.problem);
      continue;
    }
    table.row({std::to_string(row.dp), std::to_string(row.ranks), fmt::format("{:.4g}", row.iteration_s),
               fmt::format("{:.0f}", row.tokens_per_s),
               fmt::format("{:.0f}", row.tokens_per_s / static_cast<double>(row.ranks))});
  }
  return table.str() + problems;
}

std::string speed_up_json(const std::vector<SpeedUp>& rows, const cost::Cluster& cluster) {
  Json json{{"schema", 1}, {"device", cluster.device.name}, {"speed_up", Json::array()}};
  for (const SpeedUp& row : rows) {
    Json size{{"dp", row.dp}, {"ranks", row.ranks}};
    if (row.problem.empty()) {
      size["iteration_s"] = row.iteration_s;
      size["tokens_per_s"] = row.tokens_per_s;
    } else {
      size["problem"] = row.problem;
    }
    json["speed_up"].push_back(std::move(size));
  }
  return json.dump(2) + "\n";
}

std::string speed_up_csv(const std::vector<SpeedUp>& rows) {
  std::string csv;
  for (const SpeedUp& row : rows) {
    if (!row.problem.empty()) continue;
    const double tokens = std::round(row.tokens_per_s * row.iteration_s);  // of all ranks
    csv += fmt::format("{},{},{}\n", row.ranks, tokens / static_cast<double>(row.ranks), row.iteration_s);
  }
  if (csv.empty()) throw user_error("simulate.memory", rows.front().problem);
  return "num_replicas,local_bsz,step_time\n" + csv;
}

}  // namespace ms::train
