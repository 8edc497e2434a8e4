// Formats the analyses as JSON values with stable keys and units in their names. Ranks have their number, and their
// place on the mesh if it is known. Numbers that are not finite become null.
#pragma once

#include <string>

#include "base/json.h"
#include "tracepp/findings/change_points.h"
#include "tracepp/findings/diff.h"
#include "tracepp/findings/finding.h"
#include "tracepp/findings/work_diff.h"
#include "tracepp/steps/breakdown.h"
#include "tracepp/steps/bubble.h"
#include "tracepp/steps/communication.h"
#include "tracepp/steps/critical_path.h"
#include "tracepp/steps/device_paths.h"
#include "tracepp/steps/effective.h"
#include "tracepp/steps/exposed.h"
#include "tracepp/steps/idle_causes.h"
#include "tracepp/steps/kernels.h"

namespace ms::tracepp {

Json breakdown_json(const RunTrace& trace, const Breakdown& breakdown);
Json idle_json(const RunTrace& trace, const std::vector<RankIdle>& idle);
Json kernels_json(const RunTrace& trace, const std::vector<RankKernels>& ranks);
Json bubble_json(const Bubble& bubble);
Json effective_json(const RunTrace& trace, const Effective& effective);
Json communication_json(const RunTrace& trace, const CommReport& report);
Json device_paths_json(const RunTrace& trace, const DevicePaths& paths);
Json path_work_json(const RunTrace& trace, const PathWork& work);
Json critical_path_json(const RunTrace& trace, const CriticalPaths& paths);
Json exposed_json(const RunTrace& trace, const std::vector<ExposedComm>& exposed);
Json change_points_json(const RunTrace& trace, const ChangePoints& found);
Json diff_json(const Diff& diff);
Json work_diff_json(const WorkDiff& diff);

Json finding_json(const Finding& finding);
// {"rank": 5, "dp": 1, "pp": 0, "tp": 1, "host": "n0003"} of the rank with this index; the place null where the mesh
// is not known.
Json rank_json(const RunTrace& trace, std::size_t rank);
// Returns the text with a newline; bytes of names that are not UTF-8 are replaced.
std::string dump(const Json& json);

}  // namespace ms::tracepp
