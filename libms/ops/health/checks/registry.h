// The registry of checks: the passive ones of this folder. The active ones are in the module diag, which ms-diag loads
// on demand (commands/extension.h).
#pragma once

#include <string_view>
#include <vector>

#include "health/checks/check.h"

namespace ms::health {

const std::vector<Check>& passive_checks();  // level 1, in the order in which they are listed

const Check* find_check(const std::vector<Check>& checks, std::string_view code);  // nullptr: none has this code

}  // namespace ms::health
