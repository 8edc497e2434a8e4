// Traces of a simulated run, as ms-trace(5) has them: what every rank would have written.
#pragma once

#include "train/simulate/simulate.h"

namespace ms::train {

// Simulates options.trace_steps steps from the first one, and writes the trace of every rank of `setup` (which are all
// ranks of the run) to options.trace_dir. Throws Error("file.*", storage).
void write_traces(const Plan& plan, const comm::SimSetup& setup, double peak_flops, const SimulateOptions& options);

}  // namespace ms::train
