// Perfetto files of one run: one for all of it, or several that each hold some ranks and steps. Private to exports.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tracepp/export/export.h"
#include "tracepp/export/file.h"
#include "tracepp/export/lanes.h"

namespace ms::tracepp {

// The things that all files of a run share: their times count from the same moment, a track has the same number and
// place in all of them, and so has an arrow, so that files joined with cat are a trace of all that is in them.
struct PerfettoRun {
  // Returns the number of a rank's own track, 0, or of one of its picture, from 1 on. Small numbers take few bytes.
  std::uint64_t track_of(int rank, std::size_t track);
  // Returns the place of a track's packets: a sequence, and which of its clocks. It is the same in all files, and so
  // what a clock is set to in one file after the other never goes back. Tracks of a lane share sequences, each of which
  // tells the names of its events: those of other lanes are others.
  struct Place {
    std::uint64_t sequence = 0, clock = 0;  // from 1 on; from 0 on
  };
  Place place_of(std::uint64_t track, int lane);
  // Returns the number of a channel, whichever part of the run tells of it.
  std::uint64_t channel_of(const ProcessGroup& group);

  std::int64_t origin_ns = 0;  // where times count from

 private:
  std::map<std::pair<int, std::size_t>, std::uint64_t> tracks_;
  std::map<std::uint64_t, Place> places_;
  std::map<int, Place> newest_;  // by lane
  std::uint64_t sequences_ = 0;
  std::map<std::pair<std::string, std::vector<int>>, std::uint64_t> channels_;
};

class PerfettoFile {
 public:
  // Holds events of `trace`, which outlives it, as `run` does. `arrows`: those that are drawn; nullptr: all, also
  // those of which this trace has one end. Throws as ExportFile does.
  PerfettoFile(PerfettoRun& run, const RunTrace& trace, const Arrows* arrows, const std::string& path);

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
  // A sequence of packets holds tracks one after the other, each on an incremental clock of its own, so that neither
  // track nor clock is said in every packet; they share the names of events.
  struct Sequence {
    std::uint64_t id = 0;
    std::unordered_map<std::string, std::uint64_t> names;
    std::unordered_map<std::uint64_t, std::uint64_t> known;  // the same by what and microbatch
  };

  struct Open {
    std::int64_t end_ns = 0;
    std::uint64_t arrow = 0;  // that leads to its end; 0: none
  };

  void add_packet();
  void write_track(std::uint64_t uuid, std::uint64_t parent, std::string_view name, int order);
  // The packets after it are of that track.
  void begin_track(std::uint64_t track, int lane, std::int64_t time_ns);
  void write_events(const std::vector<const Event*>& events, std::uint64_t track, int lane, std::int64_t last_flush_ns);
  // `part_` holds the fields of the event besides its type.
  void add_event(std::int64_t time_ns, std::uint64_t type);
  void end_until(std::int64_t time_ns);
  // Returns the arrow that leads to the end of this event; 0: none.
  std::uint64_t begin_slice(const Event& event, std::int64_t time_ns, std::uint64_t type);
  std::uint64_t flow_of(const Event& event, const EventInfo& info);  // 0: none
  std::uint64_t name_iid(const Event& event, const EventInfo& info);
  std::uint64_t intern(std::string text);  // returns its number in the sequence
  void count(const Event& event, std::int64_t time_ns);

  PerfettoRun& run_;
  const RunTrace& trace_;
  const Arrows* const arrows_;
  std::vector<std::uint64_t> channels_;  // by group; 0: not looked up yet
  ExportFile file_;
  std::string packet_, part_;
  std::map<std::uint64_t, Sequence> sequences_;  // that this file has
  Sequence* sequence_ = nullptr;                 // of the track
  std::int64_t time_ns_ = 0;                     // of the track's newest packet
  std::vector<Open> open_;                       // the track's slices that have begun
  std::uint64_t events_ = 0;
  std::int64_t begin_ns_ = 0, end_ns_ = 0;
  std::vector<std::uint64_t> arrow_ends_;
};

// Returns the first begin of an event; 0 if none has begun.
std::int64_t first_begin_ns(const RunTrace& trace);

}  // namespace ms::tracepp
