// The results of a layout search, as text and as JSON. Pure.
#pragma once

#include <string>

#include "train/simulate/tune.h"

namespace ms::train {

std::string tuning_text(const Tuning& tuning, const cost::Cluster& cluster);
// {"schema":1,"best":[{"dp":..,"pp":..,..,"iteration_s":..,"mfu":{..},"why":..}],"given":..,"considered":..,..}
std::string tuning_json(const Tuning& tuning);

}  // namespace ms::train
