// The metrics.jsonl of a run.dir of ms-train.
#pragma once

#include <optional>
#include <string>

#include "trace/expert_loads.h"

namespace ms::tracepp {

// Returns the metrics.jsonl of a run.dir, or of its trace directory; empty where it has none.
std::string metrics_of_run(const std::string& path);

// Returns the newest loads of experts that it has; absent: none. Throws as base/user_path.h does.
std::optional<trace::ExpertLoads> newest_expert_loads(const std::string& run);

}  // namespace ms::tracepp
