// The last step of alignment: no operation ends before the begin of what it waited for. Clocks that are known to
// microseconds still put some ends too early; those are moved later, and with them the following events of that rank,
// less and less, until its clock is right again (a controlled logical clock). The order of a rank's own events is kept,
// and a rank without violations is not changed. align.h calls it, after the times are on one clock. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "tracepp/matching.h"

namespace ms::tracepp {

struct Repair {
  std::uint64_t orders = 0;           // ends that wait for something on another clock
  std::uint64_t violated_before = 0;  // that were too early
  std::uint64_t violated_after = 0;   // 0, unless what is recorded contradicts itself
  std::uint64_t moved_events = 0;
  std::int64_t largest_ns = 0;  // move
};
// Only orders between ranks of different clocks count; `clock_of` by index in RunTrace::ranks.
Repair repair_orders(RunTrace& trace, const Matches& matches, const std::vector<std::size_t>& clock_of);

}  // namespace ms::tracepp
