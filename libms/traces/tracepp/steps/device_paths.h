// Finds the critical path of each step through host threads, launches, streams and ranks, for traces that record the
// host (Kineto): from the end of a step backwards, always to what was waited for last. A step gets shorter only if
// something on this path gets faster. Requires the times of all ranks to be on one clock. Pure.
//
// Waits that the path follows: a kernel waits for the kernel before it on its stream, its launch, or the work of
// another stream that ended just before it; a collective for its last member; a launch for what its thread did before;
// a host that synchronises for the device; a host without a device for collectives while no operator runs.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tracepp/matching.h"
#include "tracepp/run_trace.h"
#include "tracepp/steps/host_threads.h"

namespace ms::tracepp {

enum class PathOf : std::uint8_t {
  kernel,
  communication,  // from the arrival of the last member
  unsplit,        // a collective of which members were not traced: waiting and transfer cannot be told apart
  copy,           // of memory, or setting it
  launch,         // from the begin of the call to the begin of the kernel
  gap,            // between kernels that were queued
  host,
  unknown,
};
inline constexpr std::size_t kPathsOf = 8;
std::string_view to_string(PathOf of);

// Pieces of a path that are alike have this in common.
struct PathWork {
  PathOf of = PathOf::unknown;
  std::uint32_t name = 0;   // string: of a kernel, a copy, a collective
  std::int32_t group = -1;  // of communication
  IdlePlace place = {};     // of the host; its cause is data, save, collection, compilation, synchronises or late
  auto operator<=>(const PathWork&) const = default;
};

struct DevicePiece {
  PathWork work;
  std::uint32_t rank = 0;  // index in RunTrace::ranks
  std::int64_t begin_ns = 0, end_ns = 0;
};

// A step that begins when the previous one ended on all ranks, host and device, and ends when its own work has.
struct DevicePath {
  std::int32_t step = kNoStep;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::vector<DevicePiece> pieces;  // in order of time, without gaps, from begin_ns to end_ns
};

struct PathTime {
  PathWork work;
  std::uint32_t most_rank = 0;  // index: the rank with the most of it on the path
  std::int64_t time_ns = 0, most_ns = 0;
  std::uint64_t pieces = 0;
};
struct PathRank {
  std::uint32_t rank = 0;
  std::int64_t time_ns = 0;
};
// The path leads from a collective on one rank to the rank that came to it last.
struct PathMove {
  std::uint32_t from = 0, to = 0;  // indices of ranks
  std::uint64_t times = 0;
  std::int64_t waited_ns = 0;  // by `from`
};

struct DevicePaths {
  std::string unknown;  // why there are none; empty: there are
  std::vector<DevicePath> steps;
  std::int64_t time_ns = 0;  // of all of them, and the sum of by_work
  // The largest first.
  std::vector<PathTime> by_work;
  std::vector<PathRank> by_rank;
  std::vector<PathMove> moves;
};

// A rank, laid out for walks over it.
struct RankPaths {
  RankPaths(const RunTrace& trace, const std::vector<HostRole>& roles, const RankTrace& rank);
  HostThreads host;
  std::vector<std::uint32_t> work;         // of the device, by end
  std::vector<std::uint32_t> comms;        // on the host, by end
  std::vector<std::uint32_t> before;       // by event: the work before it on its stream; kAbsentEvent: none
  std::vector<std::uint32_t> call;         // by event: that launched it; kAbsentEvent: not known
  std::vector<std::uint32_t> waits;        // of threads that launch, for the device, by end
  std::vector<std::uint32_t> launches_on;  // lanes of threads that launch, the main one first
};
// Returns one for every rank; none if the trace records no host.
std::vector<RankPaths> lay_out_paths(const RunTrace& trace, const std::vector<HostRole>& roles);

// Walks back over time. `ranks` must be of the same trace.
class PathWalk {
 public:
  PathWalk(const RunTrace& trace, const Matches& matches, const std::vector<RankPaths>& ranks)
      : trace_(trace), matches_(matches), ranks_(ranks) {}
  // Returns the path to the end of a step: of a device's work, or of the main thread (kAbsentEvent).
  std::vector<DevicePiece> to_end(std::uint32_t rank, std::uint32_t work, std::int64_t begin_ns, std::int64_t end_ns);
  // Returns the path to the begin of an event of a device or a collective of a host, on its own rank only.
  std::vector<DevicePiece> to_begin(std::uint32_t rank, std::uint32_t event, std::int64_t begin_ns);
  // Those of to_end() so far.
  const std::vector<PathMove>& moves() const { return moves_; }

 private:
  std::vector<DevicePiece> walk(std::int64_t begin_ns);
  const Event& event(std::uint32_t index) const { return trace_.ranks[rank_].events[index]; }
  const EventInfo& info(std::uint32_t index) const { return trace_.info(event(index)); }
  const RankPaths& here() const { return ranks_[rank_]; }
  void add(const PathWork& work, std::int64_t from_ns);
  void through_work();
  void through_comm();
  void release();
  void through_host();
  bool on_host(std::int64_t until_ns);
  std::uint32_t newest_work(std::int64_t time_ns, std::int64_t begun_ns, std::uint32_t besides) const;
  bool is_busy(std::size_t lane, std::int64_t time_ns) const;
  std::size_t lane_at(std::int64_t time_ns) const;

  const RunTrace& trace_;
  const Matches& matches_;
  const std::vector<RankPaths>& ranks_;
  std::vector<DevicePiece> pieces_;  // newest first
  std::vector<PathMove> moves_;
  std::int64_t begin_ns_ = 0, now_ns_ = 0;
  // Where the path has come to: a rank, and there work of the device, at its end or at its begin, or a thread.
  std::uint32_t rank_ = 0, work_ = kAbsentEvent;
  bool at_end_ = true, across_ = true;
  std::size_t lane_ = 0;
};

DevicePaths device_paths(const RunTrace& trace, const Matches& matches);

}  // namespace ms::tracepp
