// Weighs faults where several ranks are blamed for one operation. Used by hang.cpp. Pure.
#pragma once

#include <vector>

#include "tracepp/hang/blame.h"

namespace ms::tracepp {

// Shares the confidence in ranks that are blamed only because they lack the same operation among them: one is at fault,
// and nothing tells which. If only a minority issued it, blames these before: the others may be right.
void share_confidence(std::vector<Blame>& blames, const HangGraph& graph, const HangScan& scan);

}  // namespace ms::tracepp
