// Which nodes shall be used last, because they are likely to fail: what follows from a prediction, and no more than
// that. A node is kept for last by a weight in Slurm that is higher by a million; no job that runs is touched, and a
// job that needs the node gets it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "slurm/records.h"

namespace ms::health {

inline constexpr std::uint32_t kRaised = slurm::Node::kKeptForLast;

struct Prediction {
  std::map<std::string, double> chances = {};  // that each node fails
  double day = 0;                              // since 1970, on which that was known
};

// Reads what ms-diag predict score --json wrote: {"skill","day","units":[{"unit","chance"}]}. A unit is a node or
// "NODE/DEVICE"; of several units of a node the likeliest counts. Throws Error("avoid.file", user), also where it does
// not say that skill was shown.
Prediction prediction_in(std::string_view text, const std::string& file);
// Throws Error("avoid.old", user) where the prediction's day is longer ago, or ahead.
void check_day(const Prediction& prediction, const std::string& file, double now_s, double max_age_s);

struct AvoidOptions {
  double least_chance = 0.5;
  double most_percent = 5;  // of the nodes, rounded down, but at least one
};

struct WeightChange {
  std::string node = {};
  double chance = 0;
  std::uint32_t from = 0, to = 0;
  std::string why = {};
};

struct AvoidPlan {
  std::vector<WeightChange> changes = {};
  std::vector<std::string> stay = {};       // raised before, and rightly so
  std::vector<std::string> beyond = {};     // likely to fail too, but beyond most_percent
  std::vector<std::string> not_known = {};  // raised before, and now without a chance: left as they are
  std::vector<std::string> unknown = {};    // in the file, and not in Slurm
};

// Throws Error("avoid.weights", user) where more nodes have raised weights than this could have raised: then they are
// the site's own.
AvoidPlan plan_avoidance(const std::map<std::string, double>& chances, const std::vector<slurm::Node>& nodes,
                         const AvoidOptions& options);

std::string avoid_text(const AvoidPlan& plan, bool applied);

}  // namespace ms::health
