// Groups of parameters with a learning rate or weight decay of their own: [optim] groups. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "optim/config.h"

namespace ms::optim {

// An entry: "PATTERN lr=X weight_decay=Y", one of the two or both.
struct ParamGroup {
  std::string pattern;                      // of logical names; * stands for any text
  double lr = 1;                            // times the rate of the schedule
  std::optional<double> weight_decay = {};  // absent: as for parameters of no group
};

// Throws Error("optim.group", user).
ParamGroup parse_group(std::string_view entry);
std::vector<ParamGroup> parse_groups(const OptimConfig& config);

bool matches(std::string_view pattern, std::string_view name);

// How a parameter is updated.
struct Rates {
  double lr = 1;  // times the rate of the schedule
  double weight_decay = 0;
  bool operator==(const Rates&) const = default;
};
// The first group that the name matches counts. `decay`: whether parameters of its kind have weight decay.
Rates rates_of(const OptimConfig& config, const std::vector<ParamGroup>& groups, std::string_view name, bool decay);

}  // namespace ms::optim
