// For runs whose steps cannot be replayed, as those of torch.profiler: the rank that others wait for in collectives.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "tracepp/findings/finding.h"
#include "tracepp/findings/late_causes.h"
#include "tracepp/run_trace.h"
#include "tracepp/steps/breakdown.h"
#include "tracepp/steps/communication.h"

namespace ms::tracepp {

// Returns the rank that repeatedly comes last to collectives and causes most of the waiting: a slow_rank;
// std::nullopt: none stands out. `late` tells what it did instead. Its confidence falls with what is missing or a
// guess; its doubt says what.
std::optional<Finding> find_last_comer(const RunTrace& trace, const Breakdown& breakdown, const CommReport& comms,
                                       const std::vector<LateRank>& late);

// Tables by rank, the latest first, below the finding or a sentence that there is none. The document has the keys
// "suspects" and "findings" of suspects_json(), and "by_rank".
std::string last_comers_text(const RunTrace& trace, const Breakdown& breakdown, const CommReport& comms,
                             const std::optional<Finding>& found);
Json last_comers_json(const RunTrace& trace, const Breakdown& breakdown, const CommReport& comms,
                      const std::optional<Finding>& found);

}  // namespace ms::tracepp
