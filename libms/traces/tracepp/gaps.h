// Gaps in the traces of a run: ranks without one, and pages of events that are cut off or damaged. Whoever names a
// culprit has to look here first: the cause may lie in what is missing. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

struct Gaps {
  std::int64_t world = 0;          // ranks of the run
  std::int64_t missing = 0;        // ranks without a trace; only known of ms-train's, which all ranks write
  std::vector<int> first;          // of them, rising, at most kMostNamedGaps
  std::vector<std::string> files;  // that could not be read, with the reason
  std::uint64_t pages = 0;         // of events that are cut off or damaged,
  std::vector<int> paged;          // and the ranks that lack them, rising
  std::vector<LostSteps> lost;     // steps of these pages, of all ranks

  bool has_lost(std::int64_t step) const;
  bool any() const { return missing > 0 || !files.empty() || pages > 0; }
};
inline constexpr std::size_t kMostNamedGaps = 8;

Gaps find_gaps(const RunTrace& trace);
// Returns a sentence without a full stop for a terminal: how much is missing, of which ranks, and why; empty: nothing.
std::string gaps_text(const Gaps& gaps);
// {"missing_ranks":1,"missing_first":[0],"files":[..],"lost_pages":0,"lost_of_ranks":[]}
Json gaps_json(const Gaps& gaps);

}  // namespace ms::tracepp
