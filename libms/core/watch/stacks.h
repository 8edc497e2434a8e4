// Stacks of the threads of processes, for people who look at a run that hung.
#pragma once

#include <cstdint>
#include <string>

#include "base/sysroot.h"

namespace ms::watch {

// Reads what /proc/PID/stat says of a process. A process that is gone has state 'X'.
struct ProcessStat {
  char state = 'X';
  std::uint64_t ticks = 0;    // of processor time, user and system
  std::uint64_t started = 0;  // with the pid: which process it is
};
ProcessStat process_stat(const Sysroot& root, int pid);

// Tells what the kernel says of each thread of a process: its name, state, and where it waits. User space is not in it.
// Bounded.
std::string kernel_stacks(const Sysroot& root, int pid);

// Returns the same of this process, with the functions that each of its threads is in. A thread is asked by a signal,
// SIGURG, which may end a wait of it early: for a process that is about to end. Waits half a second at most, for
// threads that do not answer. Bounded; one call at a time.
std::string own_stacks();

}  // namespace ms::watch
