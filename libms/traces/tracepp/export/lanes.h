// Places the events of a rank in a picture: on a lane, and on a track of it on which events only nest. Used by both
// exports of timelines.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tracepp/export/export.h"
#include "tracepp/run_trace.h"

namespace ms::tracepp {

// One event of a rank, in order of begin; of those that begin together the longer first.
struct Placed {
  const Event* event = nullptr;
  std::uint32_t track = 0;  // in RankPicture::tracks
};

struct Track {
  std::string name;  // "tp", "tp 2"; what the trace calls a foreign lane
  int order = 0;     // tracks of a lane lie together
};

inline constexpr std::size_t kMaxTracks = 64;  // of a lane; beyond, the last one is not told apart any more

struct RankPicture {
  std::vector<Placed> events;
  std::vector<Track> tracks;
};

// The tracks of a rank so far, and what is open on them: for pictures of one part of the time after the other, in which
// an event of a later part does not cross one of an earlier part.
struct RankTracks {
  struct Lane {
    std::vector<std::vector<std::int64_t>> ends;  // of each track
    std::vector<std::int64_t> begins;             // the newest one of each track, of events of a step
    // By track, the events of no step, rising by begin: the first part has them, and they may begin after later parts.
    std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> of_no_step;
    std::vector<std::uint32_t> tracks;  // in `tracks` below
  };
  std::vector<Lane> lanes;
  std::vector<Track> tracks;
};

RankPicture picture_of(const RunTrace& trace, const RankTrace& rank, const ExportOptions& options);
// The next part of the time; RankPicture::tracks are all so far.
RankPicture picture_of(const RunTrace& trace, const RankTrace& rank, const ExportOptions& options, RankTracks& tracks);

// Returns the name of a rank in a picture: "rank 5 (dp 1 pp 0 tp 1) node7".
std::string title_of(const RunTrace& trace, const RankTrace& rank);
// Returns the name of an event in a picture: its own or that of its kind, with chunk and microbatch.
std::string name_of(const RunTrace& trace, const EventInfo& info, std::uint16_t microbatch);

// Returns a number that a send and its receive share in this trace; 0: the event is neither, or has not ended.
std::uint64_t arrow_of(const EventInfo& info, const Event& event);

// Numbers the sends whose receives are in the trace, and the receives, for arrows between them.
class Arrows {
 public:
  explicit Arrows(const RunTrace& trace);
  // 0: none.
  std::uint64_t of(const EventInfo& info, const Event& event) const;

 private:
  std::vector<std::uint64_t> matched_;  // sorted
};

}  // namespace ms::tracepp
