// metrics.jsonl: one JSON object per step, for people, plots and tests. Written by rank 0 only; each line is one write,
// so that a reader of a running or killed run sees at most its last line incomplete.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/handle.h"

namespace ms::trace {

class MetricsFile {
 public:
  // Keeps a file of an earlier run as `path`.previous. A run that resumes from step `resumed` begins with that file's
  // lines up to that step, so that the metrics of a run are one file with each step once. Throws Error("file.*",
  // storage).
  explicit MetricsFile(const std::string& path, std::int64_t resumed = 0);
  void write(std::string_view line);  // without the newline
  // Syncs the file and checks that everything was written.
  void close();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  UniqueFd file_;
};

}  // namespace ms::trace
