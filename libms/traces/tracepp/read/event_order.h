// The order of events in traces of other programs.
#pragma once

#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Sorts events by begin, stably.
void sort_by_begin(std::vector<Event>& events);

}  // namespace ms::tracepp
