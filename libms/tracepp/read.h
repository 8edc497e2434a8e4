// Reads the traces of a run, whatever wrote them: the door to everything else in this room. ms-tracepp calls it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tracepp/run_trace.h"
#include "tracepp/text_input.h"

namespace ms::tracepp {

struct ReadOptions {
  std::int64_t max_text_bytes = kMaxTextBytes;  // of one file, unpacked; what is beyond is left out and counted
  int threads = 0;                              // 0: as many as there are processors
  // Called now and then, by one thread at a time, with bytes of files.
  std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)> progress = {};
};

// Paths are files, or directories whose files, and those of directories in them, are looked at: traces are told by how
// they begin. Of two files of one rank the newer one counts. Throws user errors: "file.open" where a path cannot be
// opened; "trace.run" where files are not of one run, naming two that disagree; "trace.none" where there is nothing
// to read.
RunTrace read_run(const std::vector<std::string>& paths, const ReadOptions& options = {});

// Adds what another one has: its ranks, with their events told in the tables of `into`.
void merge(RunTrace& into, RunTrace&& part);

}  // namespace ms::tracepp
