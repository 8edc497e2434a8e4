// Writes a run's traces to the files that its ranks would have written: for tests and benches that begin with files.
#pragma once

#include <string>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Writes one file per rank to `dir`, which must exist. Lanes and problems are not written.
void write_run(const RunTrace& run, const std::string& dir, std::int64_t max_bytes = 16 << 20);

}  // namespace ms::tracepp
