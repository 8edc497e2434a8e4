// The tasks of an attempt on this node: processes of this user whose environment names it (MS_ATTEMPT). What an agent
// looks at and ends; it starts none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/sysroot.h"
#include "base/thread_times.h"
#include "driver/wire.h"
#include "watch/stacks.h"

namespace ms::driver {

using watch::process_stat;
using watch::ProcessStat;

struct Task {
  int pid = 0;
  int job = -1;         // SLURM_JOB_ID; -1 of these: not said
  int step = -1;        // SLURM_STEP_ID, which a batch script has not
  int attempt = -1;     // MS_ATTEMPT
  int rank = -1;        // RANK where a launcher such as torchrun has set it for its workers, else SLURM_PROCID
  bool worker = false;  // the former
};

inline constexpr double kLook_s = 0.3;  // over which a look measures processor time
inline constexpr double kDumps_s = 3;   // for flight recorders to be written

// Reads what the environment of a process says; nullopt: it is gone, or another user's.
std::optional<Task> task_of(const Sysroot& root, int pid);
bool is_python(const Sysroot& root, int pid);
// A variable in the environment that a process began with; nullopt: it is not set there, or cannot be read.
std::optional<std::string> variable_of(const Sysroot& root, int pid, std::string_view name);
// Every process of the job but this one, or of the attempt, with those that tasks started.
std::vector<Task> tasks_of(const Sysroot& root, int job);
std::vector<Task> tasks_of(const Sysroot& root, int job, int attempt);
// Sends SIGKILL to all of them and to those that they start meanwhile; returns how many there were.
int kill_tasks(const Sysroot& root, int job, int attempt);
// Returns how many processors a process took in the time in which its threads did not wait for one: others on a busy
// machine do not make it look idle. Negative: a thread has waited all the time, so what it does is not known.
double processors_of(const ThreadTimes& before, const ThreadTimes& after, double seconds);

// State, processors over `seconds`, what it waits in, and the stacks of its threads: by py-spy for Python where it
// is there, as /proc tells else.
struct TaskLook {
  std::vector<TaskEvidence> ranks;  // one process a rank: workers where there are some, not what launched them
  std::string all;                  // of every process, for people
};
TaskLook look_at(const Sysroot& root, std::vector<Task> tasks, double seconds);

// A flight recorder's file as it was before it was asked for anew; without a path where none is named.
struct FlightFile {
  std::string path;
  std::optional<std::pair<double, std::int64_t>> before;  // time and size; nullopt: there was none
};
// Has PyTorch write the flight recorders of those tasks that are ranks: it does so when a byte comes through the pipe
// that TORCH_NCCL_DEBUG_INFO_PIPE_FILE names. Returns the files of those that took one.
std::vector<FlightFile> dump_flight_recorders(const Sysroot& root, const std::vector<Task>& tasks);
// Waits until all of them are written anew, for `seconds` at most: the thread that writes NCCL's looks for the byte
// once a second.
void await_dumps(const std::vector<FlightFile>& files, double seconds);

}  // namespace ms::driver
