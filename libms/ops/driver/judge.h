// Tells what an attempt's end means: whose fault it was, as far as one can tell, and what comes next. Pure; the table
// of its test is the contract.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/exit.h"
#include "driver/flight.h"
#include "driver/losses.h"
#include "driver/watcher.h"
#include "driver/wire.h"
#include "slurm/known_lines.h"

namespace ms::driver {

using slurm::kCollectiveTimeout;
using slurm::kException;
using slurm::kJobEnds;
using slurm::known_line;
using slurm::KnownLine;
using slurm::Says;
using slurm::TaskExit;

// The verdict.json of the attempt's run, if its program writes one.
struct VerdictRead {
  int code = 0;
  std::string kind, blame, message, node;
  int rank = -1;
  std::int64_t steps_done = -1;  // of a run that was done or stopped on purpose; -1: not known
};
std::optional<VerdictRead> parse_verdict(std::string_view text);

struct NodeTask {
  std::string node;
  TaskEvidence task;
  std::int64_t step = -1;  // steps done, as it said last
};
struct SaidLine {
  const KnownLine* known = nullptr;
  std::string node;  // empty: whose is not known
  int rank = -1;
  std::string text;
  bool outlived = false;  // by its rank, which went on, so it is no reason for the end
  double at_s = 0;        // when the driver read it
};

inline constexpr int kSignal = 128, kMostSignals = 64;  // a status above is that of a signal, as shells and srun report

// Ranks called different collectives, which they would on any nodes.
inline constexpr std::string_view kMismatchCause = "collective_mismatch";

struct AttemptEvidence {
  std::optional<Alarm> alarm;          // that ended it; nullopt: it ended by itself
  std::optional<int> exit_status;      // of the command; nullopt: it was killed, or is not known
  std::optional<TaskExit> first_exit;  // of a task, as srun told
  std::optional<VerdictRead> verdict;
  bool writes_verdicts = false;  // the command is ms-train: without a verdict nothing was done
  bool asked_to_stop = false;
  bool trained = false;  // steps were done, by heartbeats
  bool printed_steps = false;
  bool said_usage = false;  // the command printed how it is to be called
  std::vector<std::string> nodes;
  int tasks_per_node = 0;            // in blocks, in the order of the nodes; 0: where a task runs is not known
  std::vector<std::string> lost;     // that left the allocation, or do not answer
  std::vector<std::string> died_on;  // where ranks died
  std::vector<NodeTask> tasks;       // when it hung
  std::optional<HangVerdict> joint;  // of ms-tracepp hang, from all that was left of a run that hung
  std::optional<LossyNode> lossy;    // when it hung: whose connections lost packets
  std::vector<SaidLine> lines;       // in the order in which they came
};

enum class Next { done, again, stop };

struct Judgement {
  Next next = Next::again;
  std::string cause;
  int code = 0;  // that the driver ends with, unless it goes on
  std::vector<std::string> suspects;
  bool certain = false;      // of the suspects: left out without a second look
  bool network = false;      // of the suspects: what lies between nodes may have made them look so
  bool accuses = true;       // the suspects; otherwise they are only looked at
  bool says_broken = false;  // the output does of the suspects: they do not work before they were looked at
  std::string why;
  // An error that may be of the program: its line, the rank that said it first, and all nodes on which ranks did.
  std::string error = {};
  int rank = -1;
  std::vector<std::string> said_on = {};
};

Judgement judge(const AttemptEvidence& evidence);

// If a line says that a link's peer did not answer: an error soon after it, of a rank that says nothing of links or
// peers itself. The end of that rank breaks the links of others, who may be heard first. nullptr: there is none.
const SaidLine* error_behind(const AttemptEvidence& evidence, const SaidLine& link);

// Tells whether srun says that it could not start tasks: it may return 0 all the same.
bool was_not_started(const AttemptEvidence& evidence);

// The node on which srun did not start tasks, or that failed, by the node or the task that each of its lines of this
// cause names; empty: no line does, or it is more than one of the nodes, or the only one.
std::string node_in_slurms_words(const AttemptEvidence& evidence, std::string_view cause);

// The ranks that differ from all others in what they do while a run hangs, by node; empty: none stands out.
std::vector<std::string> outliers(const std::vector<NodeTask>& tasks, std::string& why);

}  // namespace ms::driver
