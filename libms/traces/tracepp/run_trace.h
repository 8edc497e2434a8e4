// The traces of a run in memory, in one form for all file formats: readers make it, align.h puts its times on one
// clock, analyses read it. 32 bytes per event. Strings are untrusted: code that prints or exports them escapes them.
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
#include "tracepp/witnesses.h"

namespace ms::tracepp {

// The recorders whose traces are read, one row each: what a recorder can tell decides what an analysis may conclude.
struct Source {
  std::string_view name;  // as `ms-tracepp info` prints it
  // It signs its file every second until the end, writes a file for every rank, and records all operations of a
  // section.
  bool signs_life = false;
  bool is_dump = false;  // of the newest operations at one moment; steps are not known
  // It records the operations of a pipeline with the model's own names, and nothing of the host.
  bool is_pipeline = false;
  bool knows_idle = true;        // time without an operation is idle; false: it may be work that is not recorded
  bool continues_files = false;  // further files of a rank continue the first; false: they replace it
};

inline constexpr Source kUnknownSource{.name = ""};
inline constexpr Source kOwnSource{.name = "ms-trace", .signs_life = true};
inline constexpr Source kKineto{.name = "kineto"};
inline constexpr Source kChromeTrace{.name = "chrome"};
inline constexpr Source kNsight{.name = "nsight systems"};
inline constexpr Source kFlightRecorder{.name = "flight recorder", .is_dump = true};
inline constexpr Source kWatchdogLog{.name = "lines of PyTorch's watchdog", .is_dump = true};
inline constexpr Source kNdtimeline{.name = "ndtimeline", .is_pipeline = true, .continues_files = true};
inline constexpr Source kStragglerAnalysis{.name = "straggler analysis", .is_pipeline = true, .knows_idle = false};

using trace::GroupAxis;
using trace::Kind;
using trace::Purpose;

// How far an event got.
enum class State : std::uint8_t { issued, begun, ended };

inline constexpr std::uint16_t kNoMicrobatch = 0xffff;
inline constexpr std::int32_t kNoStep = -1;

inline double seconds(std::int64_t ns) { return 1e-9 * static_cast<double>(ns); }

struct Event {
  std::int64_t begin_ns = 0;     // on the rank's clock, on the run's once aligned; meaningless while only issued
  std::int64_t duration_ns = 0;  // 0 unless ended
  // Communication: the number of the operation in its group. Sections: microseconds in which the device computed;
  // kNoDetail: not known.
  std::uint32_t detail = 0;
  std::uint32_t info = 0;  // in RunTrace::infos
  std::int32_t step = kNoStep;
  std::uint16_t microbatch = kNoMicrobatch;
  State state = State::ended;
  std::uint8_t lane = 0;  // traces of other programs: which of the rank's timelines; else 0

  std::int64_t end_ns() const { return begin_ns + duration_ns; }
};
static_assert(sizeof(Event) == 32);
inline constexpr std::uint32_t kNoDetail = 0xffffffff;

// A table of distinct strings. An id is stable; 0 is the empty string.
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

// The category of an event of torch.profiler: on the device a kernel, a copy, or a stream that waits
// for an event; on the host an operator, an annotation, a Python function, or a call of the device's runtime.
enum class Origin : std::uint8_t { unknown, kernel, copy, stream_wait, op, annotation, python, call };

// The attributes that many events share.
struct EventInfo {
  Kind kind = Kind::other;
  Origin origin = Origin::unknown;
  Purpose purpose = Purpose::none;
  std::int16_t chunk = -1;  // -1: none
  std::int32_t group = -1;  // in RunTrace::groups; -1: none, or not known
  std::uint32_t name = 0;   // string: as recorded; empty: the kind says it
  // String. Communication: must agree among all members besides kind and size: "f32 sum". Operators of torch.profiler:
  // of the first operand.
  std::uint32_t type = 0;
  std::int32_t root = -1;        // member that a broadcast comes from
  std::int64_t size_bytes = -1;  // of communication, of a copy; of an operator, what it moves; -1: not known
  double flops = 0;              // of an operator with shapes; 0: none, or not known
  std::int32_t timeout_s = 0;    // of communication, after which it is given up; 0: not known
  bool operator==(const EventInfo&) const = default;
};

struct ProcessGroup {
  std::string name;  // "dp[pp 0 tp 1]"
  // Global ranks in the group's order; of a pipeline channel: sender, receiver. Empty: not known.
  std::vector<int> ranks;
  GroupAxis axis = GroupAxis::other;
  bool is_guessed = false;  // which operations of its members meet is a guess
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

// See trace/format.h. Other formats report at most that a rank failed.
enum class Ending : std::uint8_t { unknown, running, done, failed, timed_out, stopped };
std::string_view to_string(Ending ending);
inline bool has_error(Ending ending) {
  return ending == Ending::failed || ending == Ending::timed_out || ending == Ending::stopped;
}

// How the number of a rank is known: its file says it, only the file's name does, or nothing, so that it is made up.
enum class Numbered : std::uint8_t { inside, by_name, made_up };

// The first and the last step of which events may have been on pages that are lost.
struct LostSteps {
  std::int32_t first = kNoStep, last = kNoStep;
};

// A kernel or a copy, and the call on the host that launched it: indices in RankTrace::events.
struct Launch {
  std::uint32_t event = 0, call = 0;
};

// One rank's trace.
struct RankTrace {
  int rank = 0;
  Numbered numbered = Numbered::inside;
  mesh::Coord at;
  std::string host;    // ranks of one host share a clock
  std::string file;    // that it was read from
  std::string device;  // "cpu"; empty: not known
  int pid = 0;
  // Two clocks at one moment: the one of all times, and the wall clock, since 1970; both 0: not known.
  std::int64_t clock_ns = 0, realtime_ns = 0;
  Ending ending = Ending::unknown;
  std::string ending_text;           // the error
  int ending_rank = -1;              // rank that the error blames; -1: none
  std::vector<Event> events;         // in order of issue; in traces of other programs, of begin
  std::vector<Launch> launches;      // that the trace tells, rising by event
  std::vector<Probe> probes;         // asked by this rank
  std::vector<StepSum> sums;         // of every step that is kept, rising
  std::uint64_t dropped = 0;         // events that the writer dropped because its buffer was full
  std::uint64_t lost_pages = 0;      // of events, cut off or damaged; only of files of ms-train
  std::vector<LostSteps> lost;       // where these were, in order
  std::vector<std::uint32_t> lanes;  // strings: the names of Event::lane in traces of other programs
  std::int64_t last_flush_ns = 0;    // newest time in the file; until then the rank was alive
  std::int64_t file_ns = 0;          // time stamp of the file, since 1970; only of dumps
  bool is_flush_time_known = true;   // false: the file was written later, at a time that nothing tells
  bool is_cut_off = false;           // later operations may be missing; of dumps and of profiles, written whole
  bool is_older = false;             // than the dumps of others, which ended operations with it that it lacks
  bool is_empty = false;             // of entries, though others ended operations with it
  double earlier_s = 0;              // of a time before the dumps of others, by so much, and left out; 0: not
  double later_s = 0;                // of a time after the dumps of others, by so much; 0: not
  bool is_partial = false;           // operations may be missing that it issued before; only of dumps
  bool counts_process = false;       // its recorder numbers all calls of the process in one sequence; only of dumps
  std::vector<std::pair<std::int32_t, std::int64_t>> newest;  // of partial ones: numbers known by group besides events
  std::vector<std::pair<std::int32_t, int>> places;           // in groups; only of logs; -1: not said
  // The Python stacks (strings) that issued events which have not ended, and the newest; only of dumps.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> stacks;
  bool hides_failures = false;  // operations that failed are recorded as ended, sends and recvs not at all
};

struct RunTrace {
  std::string run;  // identifies the run; may be empty
  const Source* source = &kUnknownSource;
  mesh::Mesh mesh;  // of the whole run, also where not every rank was traced; all 1 where not known
  bool has_mesh = false;
  std::string mesh_why;  // the evidence for an inferred mesh, or why there is none; empty: the run recorded it
  bool records_mesh() const { return has_mesh && mesh_why.empty(); }
  std::int64_t world = 0;  // ranks of the whole run where the mesh is not known; 0: not known either
  int microbatches = 0, chunks = 0;
  double flops_per_step = 0, peak_flops = 0;  // of the run by the causal convention; of one rank's device; 0: not known
  std::vector<RankTrace> ranks;               // rising by rank; a rank is there once
  std::vector<EventInfo> infos;
  std::vector<ProcessGroup> groups;
  Strings strings;
  // In traces of torch.profiler: the time of all events of devices, and of those by category that no reader knows.
  std::int64_t device_ns = 0;
  std::map<std::string, std::int64_t> unknown_device_ns;
  // Records that readers could not use, by kind of problem: "record cut off" -> 3. Not an error by itself.
  std::map<std::string, std::uint64_t> problems;
  // Where several profiles of ranks were found: the directory of the newest, which this is, and the others.
  std::string recording;
  std::vector<std::string> other_recordings;
  std::vector<std::string> unusable;  // files without a trace that could be read, with the reason
  // Beside dumps and traces, for ms-tracepp hang: at most one run of the lines of PyTorch's watchdog, and what is no
  // trace.
  std::vector<RunTrace> logs;
  Witnesses witnesses;

  const EventInfo& info(const Event& event) const { return infos[event.info]; }
  std::size_t event_count() const;
  // Returns the rank with this number; nullptr: it was not traced.
  const RankTrace* rank(int number) const;
};

// Adds to a RunTrace's tables without duplicates: readers of single files find the same attributes and groups again and
// again. Others may add to the same run meanwhile.
class Tables {
 public:
  // Limit for the members of all groups together; a run of a million ranks has fewer. A group beyond is kept without
  // its members, and counted: a few bytes of a file may claim a million ranks, again and again.
  static constexpr std::size_t kMostMembers = 1 << 24;
  explicit Tables(RunTrace& trace);                             // takes over the entries that are there already
  std::uint32_t info(const EventInfo& info);                    // its index in trace.infos
  std::int32_t group(const ProcessGroup& group);                // by name and ranks; its index in trace.groups
  std::size_t room() const { return kMostMembers - members_; }  // for members of further groups

 private:
  struct InfoHash {
    std::size_t operator()(const EventInfo& info) const;
  };
  void catch_up();  // with what the run has
  RunTrace& trace_;
  std::unordered_map<EventInfo, std::uint32_t, InfoHash> infos_;
  std::map<std::pair<std::string, std::vector<int>>, std::int32_t> groups_;
  std::size_t members_ = 0, known_infos_ = 0, known_groups_ = 0;
};

}  // namespace ms::tracepp
