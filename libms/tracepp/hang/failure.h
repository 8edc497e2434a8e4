// Finds who failed or was killed in a run whose ranks ended with errors before any of them waited long, so that the
// wait graph tells little. Called by hang.cpp.
#pragma once

#include <vector>

#include "tracepp/hang/blame.h"

namespace ms::tracepp {

// Returns the ranks that ended without a word and the first that failed by itself; empty: all were stopped by others.
std::vector<Blame> blame_failure(const HangGraph& graph, const HangScan& scan);

}  // namespace ms::tracepp
