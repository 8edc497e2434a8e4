// Where the events of a rank stand in a picture of it: on which lane, and on which track of that, so that on a track
// events only nest. Both exports of timelines use it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tracepp/export.h"
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

struct RankPicture {
  std::vector<Placed> events;
  std::vector<Track> tracks;
};

RankPicture picture_of(const RunTrace& trace, const RankTrace& rank, const ExportOptions& options);

// What a picture calls a rank: "rank 5 (dp 1 pp 0 tp 1) node7".
std::string title_of(const RunTrace& trace, const RankTrace& rank);
// What a picture calls an event: its name, or what it is, with chunk and microbatch.
std::string name_of(const RunTrace& trace, const What& what, std::uint16_t microbatch);

// Numbers of sends that have their receives in the trace, and the other way round, for arrows between them.
class Arrows {
 public:
  explicit Arrows(const RunTrace& trace);
  // 0: none.
  std::uint64_t of(const What& what, const Event& event) const;

 private:
  std::vector<std::uint64_t> matched_;  // sorted
};

}  // namespace ms::tracepp
