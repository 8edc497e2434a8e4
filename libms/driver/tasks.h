// The tasks of an attempt on this node: processes of this user whose environment names it (MS_ATTEMPT). What an agent
// looks at and ends; it starts none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/sysroot.h"
#include "driver/wire.h"

namespace ms::driver {

struct Task {
  int pid = 0;
  int job = -1;      // SLURM_JOB_ID; -1 of these: not said
  int attempt = -1;  // MS_ATTEMPT
  int rank = -1;     // SLURM_PROCID
};

// Reads what /proc/PID/stat says of a process. A process that is gone has state 'X'.
struct ProcessStat {
  char state = 'X';
  std::uint64_t ticks = 0;    // of processor time, user and system
  std::uint64_t started = 0;  // with the pid: which process it is
};
ProcessStat process_stat(const Sysroot& root, int pid);

// Reads what the environment of a process says; nullopt: it is gone, or another user's.
std::optional<Task> task_of(const Sysroot& root, int pid);
// Every process of the attempt, with those that tasks started.
std::vector<Task> tasks_of(const Sysroot& root, int job, int attempt);
// Sends SIGKILL to all of them and to those that they start meanwhile; returns how many there were.
int kill_tasks(const Sysroot& root, int job, int attempt);
// State, processor time over `seconds`, what it waits in, and the stacks of its threads: by py-spy for Python where it
// is there, as /proc tells else. One process a rank.
std::vector<TaskEvidence> look_at(const Sysroot& root, int job, int attempt, double seconds);

}  // namespace ms::driver
