// The stacks that processes of ms-train leave when a wait of their run has expired, in run.dir/evidence, and what the
// devices of their nodes said.
#pragma once

#include <string>
#include <vector>

#include "tracepp/hang/hang.h"

namespace ms::tracepp {

// Returns what the suspects stood in, the state of the GPUs of their nodes, and where the rest of it is, for a
// terminal. `paths`: of the traces, or of their run. Empty: there is nothing of them.
std::string suspect_stacks(const std::vector<std::string>& paths, const Hang& hang);

}  // namespace ms::tracepp
