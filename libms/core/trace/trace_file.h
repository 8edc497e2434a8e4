// The file of one rank's trace in the format of format.h. Recorder decides what is written; this class writes it. A
// trace must never stop a run: a failed write ends the file and is logged once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/handle.h"
#include "trace/format.h"

namespace ms::trace {

// Identifies the rank and the run.
struct Identity {
  int rank = 0, world = 1;
  int dp = 1, pp = 1, tp = 1;
  int ranks_on_node = 1;
  std::string host, run, device;
  // The two clocks at one moment; 0, 0: now. Simulated runs set them.
  std::int64_t clock_ns = 0, realtime_ns = 0;
  int microbatches = 0, chunks = 0;
  double flops_per_step = 0, peak_flops = 0;
};

class TraceFile {
 public:
  // Creates the file of this rank in `dir`, which must exist. Keeps a file of an earlier run as .previous, unless that
  // one did nothing. Throws Error("file.*", storage).
  TraceFile(const std::string& dir, const Identity& identity, std::int64_t max_bytes);
  // Puts the file of the earlier run back if this one ended well and did nothing: there was nothing left to do.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  std::uint64_t page_capacity() const { return header_.pages.capacity; }

  // Appends an entry; returns its index, or kNone16 if the table is full.
  std::uint16_t add_string(std::string_view text);
  std::uint16_t add_descriptor(const format::EventDescriptor& descriptor);
  std::uint16_t add_group(const format::GroupEntry& group);
  void add_probe(const format::Probe& probe);
  void add_sum(const format::Sum& sum);
  // Writes pages with consecutive numbers; existing pages with these numbers are replaced.
  void write_pages(std::span<const format::Page> pages);
  // Makes the additions visible to readers. newest_ns: the newest time of the events written, which is the time of the
  // flush in a simulated run.
  void commit(std::uint64_t dropped, std::int64_t newest_ns);
  void end(format::Ending ending, std::string_view text, int blamed_rank);

 private:
  void write(const void* data, std::size_t size, std::uint64_t offset);
  template <class T>
  void append(format::Area& area, const T& entry);  // appends to a ring

  bool is_empty() const { return header_.pages.used == 0 && header_.sums.used == 0; }

  std::string path_, previous_;
  UniqueFd file_;
  format::Header header_;
  bool real_;                  // times are from this machine's clock; false in a simulated run
  std::uint64_t strings_ = 0;  // number of strings
  bool failed_ = false;
};

// "rank-00017.mst"
std::string trace_file_name(int rank);
// Returns the members of a group in compact form: "5", "0,3", "0-63:8", "0-3,8".
std::string ranks_text(std::span<const int> ranks);

}  // namespace ms::trace
