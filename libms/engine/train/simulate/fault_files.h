// Files of faults: traces of clusters and hazards. See faults.h for their forms.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "train/simulate/faults.h"

namespace ms::train {

// A finite number without blanks; nullopt: anything else.
std::optional<double> parse_fault_number(std::string_view text);

// Throws Error("faults.file", user) with file and line; `watched` of the result is not set.
FaultSource read_fault_file(const std::string& path);

}  // namespace ms::train
