// Puts the times of a run on one clock, that of its first rank's host, so that events of different hosts can be
// compared. Clocks are compared by the probes that ranks exchanged, by the ends of operations where there are none, by
// the wall clock where nothing else is left; then no message ends before what it waited for began. Who reads traces
// calls it once, before any analysis that looks across ranks. A run on one host is left exactly as it is. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tracepp/clock_ends.h"
#include "tracepp/clock_fit.h"
#include "tracepp/clock_repair.h"
#include "tracepp/matching.h"

namespace ms::tracepp {

// A clock of the run.
struct HostClock {
  std::string host;  // empty: not known
  int first_rank = 0;
  std::size_t ranks = 0;
  ClockSource source = ClockSource::none;
  std::int64_t offset_ns = 0;    // that was added in the middle of the run
  double drift_ppm = 0;          // that was added per million, there
  std::int64_t bound_ns = 0;     // that the samples allow it to be off; 0: not known
  std::int64_t expected_ns = 0;  // that it is expected to be off, apart from ways that are longer one way; 0: not known
};

struct Alignment {
  std::vector<HostClock> hosts;  // in order of their first rank; the first is the one that all times are on now
  EndSpread before, after;  // how far ends of one operation lie apart: by the wall clocks; by the fit, not repaired
  Repair repair;
  std::uint64_t bad_probes = 0;  // that cannot be
  bool trusted = true;           // times of different hosts may be compared
  std::string doubt;             // why not
};

Alignment align(RunTrace& trace, const Matches& matches);

}  // namespace ms::tracepp
