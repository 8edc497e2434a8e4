// Finds out whether dumps can tell anything: those of a run in which nothing waits, and those of several attempts.
// Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tracepp/hang/blame.h"
#include "tracepp/hang/graph.h"
#include "tracepp/hang/scan.h"

namespace ms::tracepp {

struct Undecided {
  RunState state = RunState::unknown;
  std::string sentence;
  double since_s = -1;  // -1: not known
};

// Returns what the dumps show where they do not show that all is well: none of them is whole or has an entry, or
// operations were issued that have begun on no rank. Such ranks wait for what their devices do before, which no dump
// shows; where that takes longer than devices compute, the run hangs. So do ranks that are all in one operation for a
// time that is not known: healthy ones are, too. nullopt: the graph, or its being empty, tells.
std::optional<Undecided> undecided(const HangScan& scan, const HangGraph& graph, const std::vector<Blame>& blames,
                                   bool is_stuck);
// Returns what is known where dumps are of several attempts, as a rank that restarted or files left from before: whose
// are newer, and what those show. nullopt: the dumps show none that is.
std::optional<Undecided> mixed_attempts(const HangScan& scan);
// Returns what is known where dumps show no wait, but some were left out, which may be of the rank at fault, or no rank
// has issued anything for long. nullopt: neither is so.
std::optional<Undecided> partial(const HangScan& scan, const std::vector<int>& missing_ranks);

}  // namespace ms::tracepp
