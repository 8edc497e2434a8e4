// What the ends of operations say about clocks: the members of a collective are done at about the same moment, whoever
// kept them waiting, and so are the two ends of a message. align.h compares clocks by it where no probe did, judges by
// it how well times fit across hosts, and corrects by it what probes leave open. Works on a sample of the operations.
// Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "tracepp/clock_fit.h"
#include "tracepp/matching.h"

namespace ms::tracepp {

// An operation's end on one clock; of several ranks of that clock the first.
struct End {
  std::size_t clock = 0;
  std::int64_t end_ns = 0;       // on that clock
  std::int64_t duration_ns = 0;  // of the shortest there: with the waiting of whoever came last
};
struct SampledEnds {
  std::vector<End> ends;              // by operation
  std::vector<std::size_t> first_of;  // each operation's first end, and one more: how many ends there are
  std::size_t operations() const { return first_of.size() - 1; }
};
// Of operations that ended on two clocks or more, as many of each group.
SampledEnds sample_ends(const RunTrace& trace, const Matches& matches, const RunClocks& clocks);

// Links between the clocks of operations. Only those that touch a clock for which `wanted` is set.
std::vector<ClockLink> end_links(const SampledEnds& ends, const std::vector<char>& wanted);

// How far ends lie from the middle one of their operation.
struct EndSpread {
  std::int64_t p50_ns = 0, p99_ns = 0, max_ns = 0;
  std::size_t ends = 0;
};
EndSpread spread_of(const SampledEnds& ends, const std::vector<FittedClock>& clocks);

// Moves each clock's map by what its ends differ from those of others: only as far as probes allow, and with the weight
// that remains beside them. Where a clock was set between two probes, the ends and a gap in the events tell when.
void refine(const RunTrace& trace, const RunClocks& of, const SampledEnds& ends, std::vector<FittedClock>& clocks);

}  // namespace ms::tracepp
