// Lines of a command's output that tell why it failed: a table of what ms, PyTorch, NCCL, CUDA, Slurm and MPI print.
// Rows accuse nodes with care: most of what a rank says in the end, its own program can cause.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace ms::slurm {

// Kinds of what a line says of the end of an attempt. Of several the first one decides; an exception and trouble are
// equals, of which the earlier decides.
enum class Says {
  proof,      // the hardware itself says that it is broken, if the words are the rank's own
  mistake,    // another attempt would end in the same way
  error,      // of the program, on whatever node
  hint,       // of its node, where no other says the same; otherwise of `blame`
  trouble,    // outside the program and its nodes
  exception,  // of the program, most likely; no row of its own tells more
  effect,     // what others see of a rank that ended
};

struct KnownLine {
  std::string_view text;   // in the line, as it is printed
  std::string_view cause;  // a stable word for the ledger
  Blame blame;
  Says says;
  std::string_view source;  // what prints it

  // The program misses something that it may do without.
  bool is_set_up() const { return says == Says::hint && blame == Blame::user; }
};

inline constexpr std::string_view kSlurmSays = "Slurm";  // a source: its programs put their names before what they say
inline constexpr std::string_view kCollectiveTimeout = "collective_timeout";
inline constexpr std::string_view kJobEnds = "job_ends";  // the cause that no other attempt can mend
inline constexpr std::string_view kLaunchFailed = "slurm_launch";
inline constexpr std::string_view kNodeFailure = "slurm_node_failure";
inline constexpr std::string_view kTerminated = "terminated";  // by a signal that others send
inline constexpr std::string_view kException = "exception";
inline constexpr std::string_view kChildFailed = "child_failed";  // a launcher says so of what it started

std::span<const KnownLine> known_lines();
// The first row whose text is in the line, or the last row if the line is an exception of Python's; nullptr: neither.
// Lines of source code, as tracebacks show them, are no reason.
const KnownLine* known_line(std::string_view line);
// Whether a row of a proof has this cause.
bool is_proof(std::string_view cause);
// The row of an exception that no other row knows.
const KnownLine* any_exception();
// The row that counts instead where a task may repeat what was said on another host: a proof becomes a hint.
const KnownLine* repeated(const KnownLine* known);
// The line is "NAME: message" or "NAME", where NAME is that of an exception class of Python.
bool is_python_exception(std::string_view line);
// Without what differs between two occurrences of one error: numbers, addresses, names of nodes.
std::string without_numbers(std::string_view line);

// Reads what srun says of a task that ended badly: "srun: error: node01: task 0: Exited with exit code 2". srun itself
// then returns the code of the tasks that it killed, so the first of these lines says more.
struct TaskExit {
  static constexpr int kUnknown = -1;
  std::string node;
  int code = 0;   // 128 + the signal that ended it; kUnknown: by one that may come from outside
  int rank = -1;  // of the task's worker that ended first, as torchrun reports; -1: it does not
};
std::optional<TaskExit> task_exit(std::string_view line);

// PyTorch puts "[rank12]: " before a worker's exception, torchrun "[default12]:" before its lines, vLLM and Ray
// "(NAME pid=4711) ". Returns that number of PyTorch's, or -1; removes any of them from the line.
int take_worker(std::string_view& line);

// srun --label puts "12: " before a task's lines. Returns the task, or -1; removes it from the line.
int take_label(std::string_view& line);

}  // namespace ms::slurm
