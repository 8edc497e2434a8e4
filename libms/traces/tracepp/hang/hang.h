// Finds why a run is stalled: from the newest operations of all ranks, which ranks wait for which across dp, tp and pp,
// and the ranks that wait for none. Reads the traces of ms-train and flight recorder dumps. Clocks need not be aligned,
// because every time is read on the rank's own clock. ms-tracepp hang shows it. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tracepp/run_trace.h"

namespace ms::tracepp {

enum class RunState : std::uint8_t {
  hang,     // a rank waits longer than such an operation ever took, and far longer than usual; or until its deadline
  failed,   // ranks ended with an error, none had waited long
  ended,    // all ranks ended well
  killed,   // the traces stopped long ago while the run was healthy, without an error: killed from outside
  cut_off,  // the traces end while the run is healthy: it continues, as far as is known
  unknown,  // the traces show neither
};
std::string_view to_string(RunState state);

// How the calls of an operation's members compare: the states of PyTorch's fr_trace.
enum class Match : std::uint8_t {
  fully_matched,
  type_mismatch,
  size_mismatch,
  state_mismatch,
  dtype_mismatch,
  undecided
};
std::string_view to_string(Match match);

// How far a member got with an operation.
enum class Progress : std::uint8_t { no_trace, not_issued, issued, begun, ended };
std::string_view to_string(Progress progress);

enum class Reason : std::uint8_t {
  no_trace,     // its file is missing, or does not tell what it did last; all others wait for it
  failed,       // ended with an error
  silent,       // stopped to write long before the others, or did not answer when others asked what it waits for
  left,         // ended well while others wait for it
  compute,      // a section of its device does not end
  data_wait,    // the host waits for tokens
  save,         // the host waits for a checkpoint
  not_issuing,  // its device has nothing to do, its host does not issue the call
  missing_call,
  extra_call,
  wrong_kind,
  wrong_size,
  wrong_dtype,
  wrong_order,  // issued two operations in another order than the others
  transfer,     // all members are ready, and it does not end: a problem of the network or its library
  waits_alone,  // waits with a few, or alone, in a call that most members have not made; no mismatch that is shown
};
std::string_view to_string(Reason reason);

// Where the cause lies. An error of the program comes on any node.
enum class FaultDomain : std::uint8_t { unknown, host, network, program, device };
std::string_view to_string(FaultDomain domain);

struct MemberView {
  int rank = 0;
  Progress progress = Progress::not_issued;
  std::uint32_t info = 0;  // in RunTrace::infos; valid from `issued` on if has_info
  bool has_info = false;
  double since_s = -1;  // begun and not ended; -1: not known
};

// An operation that some rank waits in.
struct StuckOp {
  int group = 0;               // in RunTrace::groups
  std::uint32_t sequence = 0;  // its number in the group
  Match match = Match::undecided;
  std::vector<MemberView> members;
  std::vector<int> missing;  // members that never issued it or never became ready for it
  int waiting = 0;           // members that are ready and wait
  double since_s = -1;       // of the member that waits longest; -1: not known
};

struct Wait {
  int rank = 0;
  int op = 0;  // in Hang::ops: it waits for `missing` there
};

struct HangSuspect {
  int rank = 0;  // -1: not known, but its process is
  mesh::Coord at;
  std::string host;
  int pid = 0;  // 0: not known
  Reason reason = Reason::not_issuing;
  double confidence = 0;             // 0 .. 1
  std::optional<FaultDomain> fault;  // where a source tells more than the reason does
  int op = -1;                       // in Hang::ops, that others wait for it in; -1: none
  std::string doing;                 // the last thing it did and its current one
};

// Returns where the cause of a suspect lies: what its sources tell, else what its reason does.
FaultDomain fault_domain(const HangSuspect& suspect);

// A source of evidence, and what it says by itself.
enum class Stance : std::uint8_t { silent, agrees, differs };  // with the first suspect; silent: it names no rank
std::string_view to_string(Stance stance);
struct HangSource {
  std::string name;  // "flight recorder", "ras", "stacks", ...
  RunState state = RunState::unknown;
  Stance stance = Stance::silent;
  std::string sentence;
};

enum class Cell : std::uint8_t { fine, waiting, suspect, no_trace };

struct Hang {
  RunState state = RunState::cut_off;
  std::string sentence;               // for the operator
  std::vector<std::string> evidence;  // what the waiting groups show, the strongest first
  std::vector<HangSuspect> suspects;  // the likeliest first
  std::vector<StuckOp> ops;         // those that a suspect is blamed for first, then those with the most waiting ranks
  std::vector<int> missing_ranks;   // of the mesh, or members of a group, without a trace
  std::vector<Wait> waits;          // the operation that each waiting rank waits in, ordered by rank
  double since_s = -1;              // the longest wait
  bool is_alive = false;            // known to have written something in the last seconds
  std::vector<Cell> cells;          // by rank, where the mesh is known
  std::vector<HangSource> sources;  // where more than the traces was given
  std::string collect;              // what to collect next, to be surer; empty: nothing
};

// Diagnoses a run, by its traces and all else that was read beside them. `now_s`: the wall clock, in seconds since
// 1970, if the run may still be alive; 0: not known.
Hang find_hang(const RunTrace& trace, double now_s = 0);

// Returns "rank 5"; where nothing tells the rank of a dump, "the rank of node1/dump-c.pkl".
std::string rank_name(const RunTrace& trace, int rank);
// Returns the text for a terminal, with a newline at the end: the sentence first.
std::string hang_text(const Hang& hang, const RunTrace& trace);
// Returns one JSON document with a schema version.
std::string hang_json(const Hang& hang, const RunTrace& trace);

}  // namespace ms::tracepp
