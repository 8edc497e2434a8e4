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

// How a Perfetto trace is sharded: how many steps a file holds, and how many dp ranks, each a whole replica of the
// model, so that sends and their receives lie in one file; of a trace without a mesh, how many ranks. 0: all.
struct Sharding {
  std::int32_t steps = 0;
  int dp = 0;
};
struct ShardsWritten {
  std::size_t files = 0;
  std::uint64_t events = 0, bytes = 0, largest_bytes = 0;
  std::uint64_t arrow_ends = 0;  // whose other end is in another file, or was not chosen
};
// Writes the trace as files that each open alone, steps-0000-0009.dp-00-03.perfetto, and last index.json: for each file
// its steps, ranks, events, bytes, times, and how many arrows have only one end in it. The files have times from one
// origin, and joined with cat they are the trace that export_perfetto() writes. Events of no step are in the files of
// the first steps. Beside the trace it needs memory for the events of one file's ranks, 16 bytes each.
// `directory` is made; throws Error("cli.value", user) if something is in it already, or if more than 10,000 files
// would be.
ShardsWritten export_perfetto_shards(const RunTrace& trace, const std::string& directory, const ExportOptions& options,
                                     const Sharding& sharding);

// One line an event: rank,dp,pp,tp,host,step,kind,purpose,chunk,microbatch,group,sequence,bytes,state,begin_ns,
// duration_ns,name. Fields that are not known are empty.
void export_csv(const RunTrace& trace, const std::string& path, const ExportOptions& options = {});

}  // namespace ms::tracepp
