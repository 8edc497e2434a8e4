// Puts the times of a run on one clock, that of its first rank's host if any other can be compared with it, so that
// events of different hosts can be compared. Clocks are compared by the probes that ranks exchanged, without probes by
// the ends of operations, else by the wall clock. Afterwards no operation ends before the begin of what it waited for.
// Callers align a trace once, before any analysis across ranks. A run on one host is left exactly as it is. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tracepp/clock/ends.h"
#include "tracepp/clock/fit.h"
#include "tracepp/clock/repair.h"
#include "tracepp/matching.h"

namespace ms::tracepp {

// A clock of the run.
struct HostClock {
  std::string host;  // empty: not known
  int first_rank = 0;
  std::size_t ranks = 0;
  ClockSource source = ClockSource::none;
  std::int64_t offset_ns = 0;    // added in the middle of the run
  double drift_ppm = 0;          // added per million, there
  std::int64_t bound_ns = 0;     // how far it may be off by the samples; 0: not known
  std::int64_t expected_ns = 0;  // how far it is expected to be off, assuming symmetric round trips; 0: not known
};

// The clock of a rank, by its number in Alignment::hosts, and how its times map to the run's.
struct RankClock {
  std::size_t clock = 0;
  ClockMap to_run;
};

struct Alignment {
  std::vector<HostClock> hosts;  // ordered by first rank; times are on the clock whose source is root
  EndSpread before, after;  // how far the ends of one operation lie apart: by the wall clocks; by the fit before repair
  Repair repair;
  std::uint64_t bad_probes = 0;     // contradictory ones, which were left out
  bool trusted = true;              // times of different hosts may be compared
  std::string doubt;                // why not
  std::map<int, RankClock> clocks;  // by the rank's number
};

Alignment align(RunTrace& trace, const Matches& matches);
// Puts events of some ranks, read apart from those that were aligned, on the clock of those. Only what violates the
// order among these is repaired.
void align_like(RunTrace& some, const Alignment& aligned);

}  // namespace ms::tracepp
