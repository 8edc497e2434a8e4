// Reads the traces of a run in any of the formats of formats.h: the entry point of this module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tracepp/read/text_input.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

struct ReadOptions {
  std::int64_t max_text_bytes = kMaxTextBytes;  // of one file, unpacked; the rest is left out and counted
  int threads = 0;                              // 0: as many as there are processors
  bool witnesses_suffice = false;               // without traces: RunTrace::witnesses is all that there is
  // Called now and then, by one thread at a time, with the bytes of files.
  std::function<void(std::int64_t done_bytes, std::int64_t total_bytes)> progress = {};
  // Called with each rank that was read from a file of ms-train, and the tables of its events, by several threads at a
  // time: it may leave out events, so that there is memory for those of other ranks. Traces of other programs are read
  // whole: what their events mean depends on all of them.
  std::function<void(const RunTrace& tables, RankTrace& rank)> thin = {};
};

// Reads files, and directories with their files and those of their subdirectories; the format is recognised by the
// beginning of a file. Of two files of one rank the newer one counts. Throws user errors: "file.open" if a path cannot
// be opened; "trace.run" if files are not of one run, naming two that disagree; "trace.none" if there is nothing to
// read.
RunTrace read_run(const std::vector<std::string>& paths, const ReadOptions& options = {});

// Adds the ranks of `part`; their events refer to the tables of `into` afterwards.
void merge(RunTrace& into, RunTrace&& part);

}  // namespace ms::tracepp
