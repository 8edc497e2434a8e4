// metrics.jsonl: one JSON object a step, for people, plots and the tests. Written by rank 0 only; each line is handed
// to the system whole, so that a reader, or a run that is killed, never sees half of one but perhaps the last.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/handle.h"

namespace ms::trace {

class MetricsFile {
 public:
  // A file of an earlier run of the same name is kept as `path`.previous. A run that goes on from step `resumed` begins
  // with that file's lines up to there, so that the metrics of a run are one file, each step once.
  // Throws Error("file.*", storage).
  explicit MetricsFile(const std::string& path, std::int64_t resumed = 0);
  void write(std::string_view line);  // without the newline
  // Checks that everything reached the file system.
  void close();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  UniqueFd file_;
};

}  // namespace ms::trace
