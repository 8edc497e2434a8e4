// The file of one rank's trace, as format.h lays it out. Used by Recorder, which says what goes where; here it is only
// moved to the disk. A trace must never stop a run: a write that fails ends the file, and says so once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/handle.h"
#include "trace/format.h"

namespace ms::trace {

// Who writes, and about which run.
struct Identity {
  int rank = 0, world = 1;
  int dp = 1, pp = 1, tp = 1;
  int ranks_on_node = 1;
  std::string host, run, device;
  // Two clocks at one moment; 0, 0: now. For runs that never were.
  std::int64_t clock_ns = 0, realtime_ns = 0;
  int microbatches = 0, chunks = 0;
  double flops_per_step = 0, peak_flops = 0;
};

class TraceFile {
 public:
  // The file of this rank in `dir`, which is there. One of an earlier run is kept as .previous. Throws
  // Error("file.*", storage).
  TraceFile(const std::string& dir, const Identity& identity, std::int64_t max_bytes);

  std::uint64_t page_capacity() const { return header_.pages.capacity; }

  // Appends; the number of the new entry, or kNone16 where the table is full.
  std::uint16_t add_string(std::string_view text);
  std::uint16_t add_what(const format::What& what);
  std::uint16_t add_group(const format::Group& group);
  void add_probe(const format::Probe& probe);
  void add_sum(const format::Sum& sum);
  // Pages that follow each other by number; ones that are there already are replaced.
  void write_pages(std::span<const format::Page> pages);
  // What was added becomes visible to readers. newest_ns: of the events that were written; the time of the flush where
  // the run never was.
  void commit(std::uint64_t dropped, std::int64_t newest_ns);
  void end(format::Ending ending, std::string_view text, int blamed_rank);

 private:
  void write(const void* data, std::size_t size, std::uint64_t offset);
  template <class T>
  void append(format::Area& area, const T& entry);  // to a ring

  std::string path_;
  UniqueFd file_;
  format::Header header_;
  bool real_;                  // times are those of this machine's clock
  std::uint64_t strings_ = 0;  // how many
  bool failed_ = false;
};

// "rank-00017.mst"
std::string trace_file_name(int rank);
// Members of a group in few letters: "5", "0,3", "0-63:8", "0-3,8".
std::string ranks_text(std::span<const int> ranks);

}  // namespace ms::trace
