// Tells what a rank did instead of coming to a collective, for traces that record the host (Kineto). From the end of
// one collective of a group to the begin of the next, every member has a critical path of its own. The last one's is
// longer than the mean of the others' by as much as it is late, and so are its parts together. A lead that the others
// have because they computed while they waited for this rank before counts there alone. Compares lengths on each rank's
// own clock. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "tracepp/matching.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

// A part of the path, by class and name as in work_diff.h: "data", "enumerate(DataLoader)".
struct LateCause {
  std::string of, name;
  std::int64_t more_ns = 0;  // than on the others; below 0: less
};
struct LateRank {
  std::uint32_t rank = 0;         // index
  std::uint64_t collectives = 0;  // to which it came last
  std::int64_t late_ns = 0;       // relative to the mean of the others, in all of them
  // The largest first; each list adds up to late_ns.
  std::vector<LateCause> classes, causes;

  // Returns the class that explains at least half of it; nullptr: no single one does, or the trace does not show what
  // it is.
  const LateCause* cause() const;
  // Returns the largest part of that class.
  const LateCause* inside(const LateCause& cause) const;
  // Returns how sure it is, from 0 to 1: the part of the lateness that the class explains, at most 0.9.
  double confidence(const LateCause& cause) const;
  // Returns whether the rank waited itself in other communication meanwhile.
  static bool waits(const LateCause& cause);
};
// Returns the ranks that came last to some collective, the latest first; none if the trace does not record the host.
std::vector<LateRank> late_causes(const RunTrace& trace, const Matches& matches);

Json late_causes_json(const RunTrace& trace, const std::vector<LateRank>& late);

}  // namespace ms::tracepp
