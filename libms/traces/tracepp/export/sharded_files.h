// A run in files, to be exported shard by shard: never more of its events are in memory than those of one shard, and a
// sample of all ranks' for their clocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tracepp/clock/align.h"
#include "tracepp/export/export.h"

namespace ms::tracepp {

class ShardedFiles {
 public:
  // Reads every file once. Files of other programs than ms-train are kept in memory whole. Throws as read_run() does.
  ShardedFiles(const std::vector<std::string>& paths, const ExportOptions& options);
  ShardedFiles(const ShardedFiles&) = delete;
  ShardedFiles& operator=(const ShardedFiles&) = delete;

  const ShardedRun& run() const { return run_; }
  // By operations of a sample of the steps.
  const Alignment& clocks() const { return clocks_; }
  const ChosenEvents& counted() const { return counted_; }
  // The ranks, without their events where those are not in memory.
  const RunTrace& outline() const { return outline_; }

 private:
  const RunTrace& read(const std::vector<int>& ranks, std::int32_t first_step, std::int32_t last_step);

  ShardedRun run_;
  Alignment clocks_;
  ChosenEvents counted_;
  RunTrace outline_;
  RunTrace shard_;  // read last
};

}  // namespace ms::tracepp
