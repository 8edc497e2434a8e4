// Writes a run's trace for other programs: Chrome JSON for chrome://tracing and Perfetto, Perfetto's own format, and a
// table. Strings of the trace are data in all of them. Gzip where the name ends in .gz.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

struct ExportOptions {
  std::vector<int> ranks;  // empty: all
  // Only events of these steps. Events of no step are included if no steps are chosen.
  std::int32_t first_step = kNoStep, last_step = std::numeric_limits<std::int32_t>::max();

  bool has_step(std::int32_t step) const { return step >= first_step && step <= last_step; }
  bool has_rank(int rank) const;
};

// The exports throw Error("file.*") if the file cannot be written.

// A process is a rank, a thread a lane. Events that overlap on a lane without nesting get further threads. Arrows lead
// from sends to their receives. Events that have not ended have no end; events that have not begun are instants.
void export_chrome(const RunTrace& trace, const std::string& path, const ExportOptions& options = {});

// The same as a Perfetto trace: about 29 bytes an event.
void export_perfetto(const RunTrace& trace, const std::string& path, const ExportOptions& options = {});

// One line an event: rank,dp,pp,tp,host,step,kind,purpose,chunk,microbatch,group,sequence,bytes,state,begin_ns,
// duration_ns,name. Fields that are not known are empty.
void export_csv(const RunTrace& trace, const std::string& path, const ExportOptions& options = {});

}  // namespace ms::tracepp
