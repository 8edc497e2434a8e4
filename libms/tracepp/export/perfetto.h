// Perfetto files of one run: one for all of it, or several that each hold some ranks and steps. Private to exports.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tracepp/export/export.h"
#include "tracepp/export/file.h"
#include "tracepp/export/lanes.h"

namespace ms::tracepp {

// The things that all files of a run share: their times count from the same moment, and no two use the same number for
// a track, a sequence or an arrow, so that files joined with cat are a trace of all that is in them.
struct PerfettoRun {
  explicit PerfettoRun(const RunTrace& of);  // which must outlive it
  const RunTrace& trace;
  Arrows arrows;
  std::int64_t origin_ns = 0;
  std::uint64_t sequences = 0;  // used so far
};

class PerfettoFile {
 public:
  // Throws as ExportFile does.
  PerfettoFile(PerfettoRun& run, const std::string& path);

  // Writes the events of these steps of the rank with this index, of its picture.
  void add(std::size_t rank, const RankPicture& picture, std::int32_t first_step, std::int32_t last_step);
  void commit() { file_.commit(); }

  std::uint64_t events() const { return events_; }
  // Return the first begin and the last end of the events, since the run's origin.
  std::int64_t begin_ns() const { return begin_ns_; }
  std::int64_t end_ns() const { return end_ns_; }
  // Returns how many arrows have only one end in this file.
  std::uint64_t cut_arrows();

 private:
  // A track is a sequence of packets of its own: what all of them have in common is said once.
  struct Sequence {
    std::uint64_t id = 0;
    std::int64_t time_ns = 0;                                // of the newest packet
    std::vector<std::int64_t> open;                          // ends of slices that have begun
    std::unordered_map<std::uint64_t, std::uint64_t> names;  // iids by what and microbatch
  };

  void add_packet();
  void write_track(std::uint64_t uuid, std::uint64_t parent, std::string_view name, int order);
  void begin_sequence(Sequence& sequence, std::uint64_t track, std::int64_t time_ns);
  // `part_` holds the fields of the event besides its type.
  void add_event(Sequence& sequence, std::int64_t time_ns, std::uint64_t type);
  void end_until(Sequence& sequence, std::int64_t time_ns);
  void begin_slice(Sequence& sequence, const Event& event, std::int64_t time_ns, std::uint64_t type);
  void count(const Event& event, std::int64_t time_ns);

  PerfettoRun& run_;
  ExportFile file_;
  std::string packet_, part_;
  std::uint64_t events_ = 0;
  std::int64_t begin_ns_ = 0, end_ns_ = 0;
  std::vector<std::uint64_t> arrow_ends_;
};

}  // namespace ms::tracepp
