// Lines of a command's output that tell why it failed: a table of what ms, PyTorch, NCCL, CUDA and MPI print, with whom
// each accuses. A row may be wrong about a node only where it says so with certainty.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace ms::driver {

struct KnownLine {
  std::string_view text;   // in the line, as it is printed
  std::string_view cause;  // a stable word for the ledger
  Blame blame;
  bool certain;  // accuses the node beyond doubt: the hardware said so itself
};

inline constexpr std::string_view kCollectiveTimeout = "collective_timeout";
inline constexpr std::string_view kJobEnds = "job_ends";  // the cause that no other attempt can mend

std::span<const KnownLine> known_lines();
// The first row whose text is in the line; nullptr: none.
const KnownLine* known_line(std::string_view line);

// Reads what srun says of a task that ended badly: "srun: error: node01: task 0: Exited with exit code 2". srun itself
// then returns the code of the tasks that it killed, so the first of these lines says more.
struct TaskExit {
  std::string node;
  int code = 0;  // 128 + the signal that ended it
};
std::optional<TaskExit> task_exit(std::string_view line);

// srun --label puts "12: " before a task's lines. Returns the task, or -1; removes it from the line.
int take_label(std::string_view& line);

}  // namespace ms::driver
