// The traces of a run in memory, whatever they were read from: readers make it, align.h puts its times on one clock,
// analyses read it. 32 bytes an event. Strings are data: whoever prints or exports them escapes them.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "mesh/mesh.h"
#include "trace/kinds.h"

namespace ms::tracepp {

using trace::GroupAxis;
using trace::Kind;
using trace::Purpose;

// How far an event got.
enum class State : std::uint8_t { issued, begun, ended };

inline constexpr std::uint16_t kNoMicrobatch = 0xffff;
inline constexpr std::int32_t kNoStep = -1;

struct Event {
  std::int64_t begin_ns = 0;     // on the rank's clock; on the run's once aligned; of no meaning while only issued
  std::int64_t duration_ns = 0;  // 0 unless ended
  // Of messages: the number of the operation in its group. Of sections: microseconds in which the device computed,
  // kNoDetail where that is not known.
  std::uint32_t detail = 0;
  std::uint32_t what = 0;  // in RunTrace::whats
  std::int32_t step = kNoStep;
  std::uint16_t microbatch = kNoMicrobatch;
  State state = State::ended;
  std::uint8_t lane = 0;  // of foreign traces: which of the rank's timelines; 0 elsewhere

  std::int64_t end_ns() const { return begin_ns + duration_ns; }
};
static_assert(sizeof(Event) == 32);
inline constexpr std::uint32_t kNoDetail = 0xffffffff;

// Strings, each once. An id is stable; 0 is the empty string.
class Strings {
 public:
  Strings() { id(""); }
  Strings(const Strings&) = delete;
  Strings& operator=(const Strings&) = delete;
  Strings(Strings&&) = default;
  Strings& operator=(Strings&&) = default;
  std::uint32_t id(std::string_view text);
  std::string_view text(std::uint32_t id) const { return *texts_[id]; }
  std::size_t size() const { return texts_.size(); }

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::unordered_map<std::string, std::uint32_t, Hash, std::equal_to<>> ids_;
  std::vector<const std::string*> texts_;  // keys of ids_: they do not move
};

// What many events have in common.
struct What {
  Kind kind = Kind::other;
  Purpose purpose = Purpose::none;
  std::int16_t chunk = -1;       // -1: none
  std::int32_t group = -1;       // in RunTrace::groups; -1: none, or not known
  std::uint32_t name = 0;        // string: as recorded; empty: the kind says it
  std::uint32_t type = 0;        // string: what all members must agree on besides kind and size: "f32 sum"
  std::int32_t root = -1;        // member that a broadcast comes from
  std::int64_t size_bytes = -1;  // of messages; -1: not known
  bool operator==(const What&) const = default;
};

struct Group {
  std::string name;        // "dp[pp 0 tp 1]"
  std::vector<int> ranks;  // global, in the group's order; of a pipeline channel: sender, receiver. Empty: not known
  GroupAxis axis = GroupAxis::other;
};

// See trace/format.h.
struct Probe {
  int peer = 0;
  int round = 0;
  std::int64_t asked_ns = 0, answered_ns = 0, peer_heard_ns = 0, peer_replied_ns = 0;
};

struct StepSum {
  std::int64_t step = 0, begin_ns = 0, end_ns = 0;
  std::uint32_t events = 0, unfinished = 0;
  std::vector<float> seconds;  // by trace::format::SumOf
};

// See trace/format.h. Others than our own writer tell at most that a rank failed.
enum class Ending : std::uint8_t { unknown, running, done, failed, timed_out, stopped };
std::string_view to_string(Ending ending);
inline bool has_error(Ending ending) {
  return ending == Ending::failed || ending == Ending::timed_out || ending == Ending::stopped;
}

// One rank's trace.
struct RankTrace {
  int rank = 0;
  mesh::Coord at;
  std::string host;    // ranks of one host share a clock
  std::string file;    // that it was read from
  std::string device;  // "cpu"; empty: not known
  int pid = 0;
  // Two clocks at one moment: the one that times are read from, and the wall's, since 1970; both 0 where not known.
  std::int64_t clock_ns = 0, realtime_ns = 0;
  Ending ending = Ending::unknown;
  std::string ending_text;           // the error
  int ending_rank = -1;              // that the error blames; -1: none
  std::vector<Event> events;         // in order of issue; of foreign traces, of begin
  std::vector<Probe> probes;         // asked by this rank
  std::vector<StepSum> sums;         // of every step that is kept, rising
  std::uint64_t dropped = 0;         // events that the writer had no room for
  std::vector<std::uint32_t> lanes;  // strings: of foreign traces, the names of Event::lane
  std::int64_t last_flush_ns = 0;    // newest time that anything here shows; until then the rank was alive
};

struct RunTrace {
  std::string run;     // what tells this run from others; may be empty
  std::string source;  // "ms-trace", "kineto", "chrome", "ndtimeline", "flight recorder", "straggler analysis"
  mesh::Mesh mesh;     // of the whole run, also where not every rank was traced; all 1 where not known
  bool has_mesh = false;
  int microbatches = 0, chunks = 0;
  double flops_per_step = 0, peak_flops = 0;  // of the run by the causal convention; of one rank's device; 0: not known
  std::vector<RankTrace> ranks;               // rising by rank; a rank is there once
  std::vector<What> whats;
  std::vector<Group> groups;
  Strings strings;
  // What readers could not use, by kind of problem: "record cut off" -> 3. Never an error by itself.
  std::map<std::string, std::uint64_t> problems;

  const What& what(const Event& event) const { return whats[event.what]; }
  std::size_t event_count() const;
  // The one with this number; nullptr: it was not traced.
  const RankTrace* rank(int number) const;
};

// Makes one of many, as readers of single files meet the same things again and again. Keeps a RunTrace's tables without
// duplicates.
class Tables {
 public:
  // Of all groups together; a run of a million ranks has fewer. A group beyond is kept without its members, and
  // counted: a few bytes of a file may say a million ranks, again and again.
  static constexpr std::size_t kMostMembers = 1 << 24;
  explicit Tables(RunTrace& trace);                             // of what it has already, too
  std::uint32_t what(const What& what);                         // its index in trace.whats
  std::int32_t group(const Group& group);                       // by name and ranks; its index in trace.groups
  std::size_t room() const { return kMostMembers - members_; }  // for members of further groups

 private:
  struct WhatHash {
    std::size_t operator()(const What& what) const;
  };
  RunTrace& trace_;
  std::unordered_map<What, std::uint32_t, WhatHash> whats_;
  std::map<std::pair<std::string, std::vector<int>>, std::int32_t> groups_;
  std::size_t members_ = 0;
};

}  // namespace ms::tracepp
