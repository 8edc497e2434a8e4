// Reads Chrome timelines of many ranks with their places in the mesh: as NDTimeline draws them (pid is the dp rank, a
// thread is "rank[5] main" with tid 10 * rank + lane, args rank, step, tp, pp) and as StragglerAnalysis does (threads
// "PP rank 1, TP rank 0, compute" with tid 5 * rank + lane, args step, model_chunk, mb_id, seq_id). Called by
// chrome_reader.cpp. Their operations become sections and communication; groups follow from the mesh.
#pragma once

#include <string>

#include "tracepp/read/chrome_events.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

bool is_pipeline_timeline(const ChromeFile& file);

// Adds its ranks, with communication without groups, as a file may be of one host of many.
void add_pipeline_timeline(ChromeFile& file, RunTrace& trace, Tables& tables, const std::string& path);

// Sets the mesh, the groups and the numbers of operations once all files are read. An operation is numbered by its
// step, its name and its index among those of that name in the step, so that it has the same number on all ranks.
void connect_pipeline(RunTrace& trace);

}  // namespace ms::tracepp
