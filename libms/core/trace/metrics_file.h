// metrics.jsonl: one JSON object per step, for people, plots and tests. Written by rank 0 only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trace/append_file.h"

namespace ms::trace {

class MetricsFile {
 public:
  // Keeps a file of an earlier run as `path`.previous. A run that resumes from step `resumed` begins with that file's
  // lines up to that step, so that the metrics of a run are one file with each step once. Throws Error("file.*",
  // storage).
  explicit MetricsFile(const std::string& path, std::int64_t resumed = 0);
  void write(std::string_view line) { file_.write(std::string(line) + '\n'); }  // without the newline
  void close() { file_.close(); }
  const std::string& path() const { return file_.path(); }

 private:
  AppendFile file_;
};

}  // namespace ms::trace
