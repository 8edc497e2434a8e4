// Reads the files that trace/trace_file.h writes: ms-trace(5). A file may be of a run that goes on or was killed; what
// cannot be used is counted in RunTrace::problems.
#pragma once

#include <string>
#include <unordered_map>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Whether a file that begins like this is one. 8 bytes suffice.
bool is_trace_file(std::string_view beginning);

class TraceFileReader {
 public:
  // Read into `trace`, which outlives this.
  explicit TraceFileReader(RunTrace& trace);

  // Adds one rank. Throws Error("trace.file", user) where the file is no trace, or of a version that is not known, or
  // has no sound header; Error("file.*") where it cannot be read.
  void read(const std::string& path);

 private:
  RunTrace& trace_;
  Tables tables_;
  std::unordered_map<std::string, std::int32_t> groups_;  // by name and ranks as they are written
};

}  // namespace ms::tracepp
