// Writes a run's traces to files, as its ranks would have: for tests and benches of everything from the files on.
#pragma once

#include <string>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// One file a rank in `dir`, which is there. Lanes and problems are not written.
void write_run(const RunTrace& run, const std::string& dir, std::int64_t max_bytes = 16 << 20);

}  // namespace ms::tracepp
