// Sources of a hang beside traces, as read: NCCL's RAS, stacks of processes, lines of logs, progress. All of it is
// untrusted text.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "slurm/known_lines.h"

namespace ms::tracepp {

struct Process {
  int rank = -1;  // of the run; in RAS, of its communicator; -1: not known
  std::string host;
  int pid = 0;  // 0: not known
};

// The ranks of a communicator that have called an operation equally often.
struct RasCount {
  std::int64_t calls = 0;
  std::int64_t ranks = 0;
  std::vector<Process> listed;  // those ranks; empty: RAS lists outliers only
};

struct RasComm {
  std::string hash;
  int size = 0;                                        // 0: not known
  std::map<std::string, std::vector<RasCount>> calls;  // by operation, rising; as text: only where ranks differ
  std::vector<Process> lost;                           // ranks that do not answer
  std::vector<Process> absent;                         // ranks that answer and have no such communicator
  std::map<std::string, std::vector<Process>> errors;  // by what NCCL calls it: "Remote process error"
  std::vector<Process> aborted;
  std::int64_t initialising = 0;  // ranks
};

// The output of ncclras, as text or JSON.
struct RasReport {
  std::string file;
  std::int64_t file_ns = 0;
  std::int64_t world = 0;      // processes or GPUs of the job; 0: not known
  std::vector<RasComm> comms;  // the largest first
  std::vector<Process> dead, silent;
  std::int64_t num_dead = 0, num_silent = 0;  // of which not all may be listed
  bool is_text = false;
};

// The thread of a process that runs the program.
struct ProcessStack {
  Process process;
  char state = ' ';                 // as the kernel has it; ' ': not known
  std::vector<std::string> frames;  // the innermost first
};

// How far a process got, by a source that sees what ends.
struct ProcessProgress {
  Process process;
  std::int64_t done = 0;       // steps or collectives
  std::int64_t newest_ns = 0;  // when the newest of them ended, since 1970
  std::string doing;           // the section of a step; empty: not said
  bool is_dead = false;
};

// Heartbeats, as the status of ms-driver has them, or files of NCCL's Inspector.
struct ProgressReport {
  std::string source;
  std::vector<ProcessProgress> processes;
  std::int64_t written_ns = 0;  // when all of them were looked at; 0: each wrote when something ended
  std::int64_t limit_ns = 0;    // without progress for longer, the run hangs
  std::string slow;             // by how much it is slower than before; empty: it is not, or the source does not tell
};

struct NotedLine {
  Process process;
  const slurm::KnownLine* known = nullptr;  // nullptr: of a task that srun saw end
  int exit_code = 0;                        // of that task
  std::string text;
  std::int64_t file_ns = 0;       // time stamp of the file, since 1970; 0: not known
  bool has_logged_after = false;  // the rank, after an exception: it may have caught it
};

struct Witnesses {
  std::vector<RasReport> ras;
  std::vector<ProcessStack> stacks;
  std::vector<NotedLine> lines;  // the first of each rank and cause
  std::vector<ProgressReport> progress;

  std::size_t size() const { return ras.size() + stacks.size() + lines.size() + progress.size(); }
  void add(Witnesses&& other) {
    std::ranges::move(other.ras, std::back_inserter(ras));
    std::ranges::move(other.stacks, std::back_inserter(stacks));
    std::ranges::move(other.lines, std::back_inserter(lines));
    std::ranges::move(other.progress, std::back_inserter(progress));
  }
};

}  // namespace ms::tracepp
