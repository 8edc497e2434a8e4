// The analyses as JSON values with stable keys, units in their names; for tools that print one document of several.
// Ranks are told by number, places on the mesh with them where it is known. Numbers that are not finite become null.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "tracepp/breakdown.h"
#include "tracepp/bubble.h"
#include "tracepp/change_points.h"
#include "tracepp/critical_path.h"
#include "tracepp/diff.h"
#include "tracepp/effective.h"
#include "tracepp/messages.h"

namespace ms::tracepp {

nlohmann::ordered_json breakdown_json(const RunTrace& trace, const Breakdown& breakdown);
nlohmann::ordered_json bubble_json(const Bubble& bubble);
nlohmann::ordered_json effective_json(const RunTrace& trace, const Effective& effective);
nlohmann::ordered_json messages_json(const RunTrace& trace, const MessageReport& report);
nlohmann::ordered_json critical_path_json(const RunTrace& trace, const CriticalPaths& paths);
nlohmann::ordered_json change_points_json(const RunTrace& trace, const ChangePoints& found);
nlohmann::ordered_json diff_json(const Diff& diff);

// {"rank": 5, "dp": 1, "pp": 0, "tp": 1, "host": "n0003"} of the rank with this index; the place null where the mesh
// is not known.
nlohmann::ordered_json rank_json(const RunTrace& trace, std::size_t rank);
// For printing, with a line end: bytes of names that are no UTF-8 are replaced.
std::string dump(const nlohmann::ordered_json& json);

}  // namespace ms::tracepp
