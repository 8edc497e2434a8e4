// Simulates a run of a mesh in virtual time, and the traces it leaves: every rank runs its program on streams,
// communication completes once all members are ready and agree. Faults are injected by name. For the tests of the hang
// analysis.
#pragma once

#include <cstdint>
#include <limits>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

enum class FaultKind {
  missing_call,  // the call is left out, the host goes on
  host_stops,    // the host never comes to the call
  extra_call,    // one call too many before it, just like it
  foreign_call,  // one call too many before it, of another size
  wrong_size,
  wrong_dtype,
  wrong_kind,
  wrong_order,   // the sum over all ranks before the gradients of its dp group; only the step counts
  crossed_pair,  // the stage after it must answer before it sends; only the step counts
  never_ends,    // a section, or a wait for data
  dies,          // when it begins: nothing of this rank happens or is written any more
};

struct InjectedFault {
  FaultKind kind = FaultKind::missing_call;
  int rank = 0;
  Kind call = Kind::all_gather;  // the first of this kind and purpose in that step
  Purpose purpose = Purpose::params;
  int step = 2;
};

struct SimulatedRun {
  mesh::Mesh mesh{.dp = 2, .pp = 2, .tp = 2};
  int microbatches = 4, steps = 4;
  std::vector<InjectedFault> faults;
  unsigned seed = 1;
};

class Simulation {
 public:
  explicit Simulation(const SimulatedRun& run);
  // What the files show if all is killed at that moment: every rank has written within the second before.
  RunTrace traces(double at_s);
  // The same when nothing has moved for a while; ended well where the run came to its end.
  RunTrace traces_at_rest(double quiet_s = 212) { return traces(static_cast<double>(rest_ns_) * 1e-9 + quiet_s); }
  double rest_s() const { return static_cast<double>(rest_ns_) * 1e-9; }
  bool came_to_an_end() const;

 private:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  struct Op {
    std::uint32_t info = 0, sequence = 0;
    int step = 0, stream = 0;
    std::uint16_t microbatch = kNoMicrobatch;
    bool is_left_out = false, never_ends = false, host_stops = false, dies = false;
    std::int64_t work_ns = 0;   // of messages: from when all are ready
    std::vector<int> after;     // of the rank: must have ended before
    int section = -1;           // that it is part of: it begins after that began, which ends after it
    int waits = 0, inner = -1;  // things that it waits for; the message inside a section
    std::int64_t issued_ns = kNever, begin_ns = kNever, end_ns = kNever;
  };
  struct Rank {
    std::vector<Op> ops;
    std::vector<std::vector<int>> then;  // by op: those that come after it
    std::vector<int> last_of_step;
    std::size_t issued = 0;
    std::int64_t died_ns = kNever;
  };
  struct Due {
    std::int64_t at_ns;
    int rank, op;  // op -1: the host goes on
    bool operator>(const Due& other) const { return at_ns > other.at_ns; }
  };
  struct Program;

  const InjectedFault* fault(int rank, int step, FaultKind kind) const;
  void link(Rank& rank);
  void issue(int rank, std::int64_t now_ns);
  void release(int rank, int op, std::int64_t now_ns);
  void finish(int rank, int op, std::int64_t now_ns);
  RankTrace trace_of(int rank, std::int64_t at_ns, std::mt19937& random) const;

  SimulatedRun run_;
  RunTrace shared_;  // its tables are those of all traces
  Tables tables_{shared_};
  std::vector<Rank> ranks_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::vector<std::vector<std::vector<std::pair<int, int>>>> ready_;  // by group and number: rank, op
  std::mt19937 random_;
  std::int64_t rest_ns_ = 0;
};

}  // namespace ms::tracepp
