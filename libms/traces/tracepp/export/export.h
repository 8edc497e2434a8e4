// Writes a run's trace for other programs: Chrome JSON for chrome://tracing and Perfetto, Perfetto's own format, and a
// table. Strings of the trace are data in all of them. Gzip where the name ends in .gz.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
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

// How many events options choose, counted rank by rank.
struct ChosenEvents {
  std::size_t events = 0;    // of chosen ranks and steps
  std::size_t of_steps = 0;  // of chosen steps
  std::int32_t first_step = std::numeric_limits<std::int32_t>::max(),
               last_step = -1;  // of all events; -1: none has one
  void add(const RankTrace& rank, const ExportOptions& options);
};

// The exports throw Error("file.*") if the file cannot be written.

// A process is a rank, a thread a lane. Events that overlap on a lane without nesting get further threads. Arrows lead
// from sends to their receives. Events that have not ended have no end; events that have not begun are instants.
void export_chrome(const RunTrace& trace, const std::string& path, const ExportOptions& options = {});

// The same as a Perfetto trace: 26 to 29 bytes an event. Of a run with more than 8,192 tracks, some 1,200 ranks, up to
// two more: the numbers of their sequences take two bytes in every packet.
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
// A run that is exported shard by shard.
struct ShardedRun {
  struct Rank {
    int rank = 0, dp = 0;  // dp: of a trace without a mesh the rank's number
  };
  std::string run;
  bool has_mesh = false;
  std::vector<Rank> ranks = {};  // chosen ones, rising by rank
  // Chosen ones, kNoStep for events of none, and how many events they have.
  std::map<std::int32_t, std::uint64_t> steps = {};
  std::int64_t origin_ns = 0;  // the first begin of an event
  // Returns a trace that has the events of these ranks and steps, perhaps others, too, until it is called again.
  std::function<const RunTrace&(const std::vector<int>& ranks, std::int32_t first_step, std::int32_t last_step)> read =
      {};
};
// The same of a trace in memory, which outlives it.
ShardedRun sharded(const RunTrace& trace, const ExportOptions& options);

// Writes the run as files that each open alone, steps-0000-0009.dp-00-03.perfetto, and last index.json: for each file
// its steps, ranks, events, bytes, times, and how many arrows have only one end in it. The files have times from one
// origin, and joined with cat they are the whole trace. Events of no step are in the files of the first steps. It needs
// memory for what run.read() returns, and that is asked for the ranks of one file and the steps of one or more: as many
// as have a million events together, 32 bytes each.
// `directory` is made; throws Error("cli.value", user) if something is in it already, or if more than 10,000 files
// would be.
ShardsWritten export_perfetto_shards(const ShardedRun& run, const std::string& directory, const Sharding& sharding);

// One line an event: rank,dp,pp,tp,host,step,kind,purpose,chunk,microbatch,group,sequence,bytes,state,begin_ns,
// duration_ns,name. Fields that are not known are empty.
void export_csv(const RunTrace& trace, const std::string& path, const ExportOptions& options = {});

}  // namespace ms::tracepp
