// Reads the files that trace/trace_file.h writes: ms-trace(5). The run may still be alive, or may have been killed;
// unusable records are counted in RunTrace::problems.
#pragma once

#include <string>
#include <unordered_map>

#include "tracepp/read/formats.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

// Returns whether a file that begins like this is such a file. 8 bytes suffice.
bool is_trace_file(std::string_view beginning, bool is_named = false);

class TraceFileReader final : public TraceReader {
 public:
  // Reads into `trace`, which must outlive it.
  explicit TraceFileReader(RunTrace& trace);

  // Adds one rank. Throws Error("trace.file", user) if the file is not a trace, is of an unknown version, or has no
  // sound header; Error("file.*") if it cannot be read.
  void read(const std::string& path);
  std::int64_t read(TextInput& input) override {
    read(input.path());
    return 0;
  }

 private:
  RunTrace& trace_;
  Tables tables_;
  std::unordered_map<std::string, std::int32_t> groups_;  // by name and ranks as they are written
};

}  // namespace ms::tracepp
