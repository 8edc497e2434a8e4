// Compares clocks by the ends of operations: the members of a collective finish at about the same moment, whichever
// member kept them waiting, and so do the two ends of a transfer. align.h uses it where there were no probes, to judge
// how well times fit across hosts, and to correct what probes leave open. Works on a sample of the operations. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "tracepp/clock/fit.h"
#include "tracepp/matching.h"

namespace ms::tracepp {

// An operation's end on one clock; of several ranks of that clock the first.
struct End {
  std::size_t clock = 0;
  std::int64_t end_ns = 0;       // on that clock
  std::int64_t duration_ns = 0;  // of the shortest there: it includes waiting for the last member
};
struct SampledEnds {
  std::vector<End> ends;              // by operation
  std::vector<std::size_t> first_of;  // each operation's first end, and one more: how many ends there are
  std::size_t operations() const { return first_of.size() - 1; }
};
// Returns the ends of operations that ended on at least two clocks, about as many of each group.
SampledEnds sample_ends(const RunTrace& trace, const Matches& matches, const RunClocks& clocks);

// Returns links between the clocks of operations, only those with a clock for which `wanted` is set.
std::vector<ClockLink> end_links(const SampledEnds& ends, const std::vector<char>& wanted);

// Returns how far ends lie from the middle one of their operation.
struct EndSpread {
  std::int64_t p50_ns = 0, p99_ns = 0, max_ns = 0;
  std::size_t ends = 0;
};
EndSpread spread_of(const SampledEnds& ends, const std::vector<FittedClock>& clocks);

// Shifts each clock's map by the difference of its ends from those of others, as far as probes allow, and with the
// weight that remains beside them. If a clock was set between two probes, the ends and a gap in the events show when.
void refine(const RunTrace& trace, const RunClocks& of, const SampledEnds& ends, std::vector<FittedClock>& clocks);

}  // namespace ms::tracepp
