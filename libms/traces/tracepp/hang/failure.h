// Finds who is at fault by how the ranks ended: who failed or was killed in a run whose ranks ended with errors before
// any of them waited long, so that the wait graph tells little; and whom the run itself blamed. Called by hang.cpp.
#pragma once

#include <vector>

#include "tracepp/hang/blame.h"

namespace ms::tracepp {

// Returns the ranks that ended without a word and the first that failed by itself; empty: all were stopped by others.
std::vector<Blame> blame_failure(const HangGraph& graph, const HangScan& scan);

// Adds the ranks that the run itself blamed. Ranks ask each other what they wait for before they give up at a deadline
// (comm/inquiry.h), and one that does not answer is stalled, whatever its trace shows it in. It comes before all that
// is only inferred, and beside a fault that the traces show, as a call that does not match.
void heed_inquiry(std::vector<Blame>& blames, const HangScan& scan);

}  // namespace ms::tracepp
