// Oddities of settings that are sound: probably not meant, and no reason to refuse a run. Pure.
#pragma once

#include <string>
#include <vector>

#include "train/config.h"

namespace ms::train {

std::vector<std::string> oddities(const Settings& settings);

}  // namespace ms::train
