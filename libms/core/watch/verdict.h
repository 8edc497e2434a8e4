// The verdict of a run: why it ended, in run.dir/verdict.json. srun returns only the highest code of its tasks and
// mpirun kills survivors, so job scripts and the driver read this file. The first cause wins: the file is created,
// never replaced.
//
// A run that is requeued starts again in its directory, and ranks of the start before may still be about: a node that
// was cut off from Slurm reaches the storage. So a verdict belongs to a start: run.dir/start names the one that has the
// directory, and a rank of any other writes nothing.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"

namespace ms::watch {

struct Verdict {
  ExitCode code = ExitCode::done;
  std::string kind;   // Error::kind(), empty when done
  std::string blame;  // to_string(Blame), empty when done, and when stopped: nobody failed
  std::string message;
  int rank = -1;           // the rank to blame, or the rank that failed; -1: nothing tells which
  std::string node;        // its host
  std::string operation;   // the communication operation that noticed the failure, if any
  std::int64_t step = -1;  // the step the writer was in
};

Verdict verdict_done(std::int64_t steps);
// The run was stopped on request after `steps` steps in total; `checkpoint` is empty if this run saves nothing.
Verdict verdict_stopped(std::int64_t steps, const std::string& cause, const std::string& checkpoint);
// The run ended after `steps` steps because its guard wants it to begin again from `checkpoint`; `cause` says why.
Verdict verdict_rolled_back(std::int64_t steps, const std::string& cause, const std::string& checkpoint);
Verdict verdict_of(const Error& error, int rank, std::string node, std::int64_t step);

// From now on the process ignores SIGTERM: call it when a failure is being handled, or when all that is left is to
// exit. mpirun and srun send SIGTERM to the other ranks once one has died or exited with a code that is not 0, which
// would cut off error messages and exit codes. SIGKILL follows and still works.
void begin_ending() noexcept;

// Makes the directory this start's, and removes the verdict of the start before, and old evidence. `nonce` is of this
// start, without a space; all of its ranks know it. Called by one rank, which has the directory's lock, before the
// others start to work.
void begin_start(const std::string& run_dir, const std::string& nonce);
// Returns whether the directory is this start's.
bool is_start(const std::string& run_dir, const std::string& nonce) noexcept;
// Keeps room for the verdict, so that a disk that becomes full later does not swallow it.
void reserve_verdict(const std::string& run_dir) noexcept;
// Returns false if this start has a verdict, another start has the directory, or nothing could be written. Never
// throws, because the run is ending; logs the failure.
bool write_verdict(const std::string& run_dir, const std::string& nonce, const Verdict& verdict) noexcept;
bool has_verdict(const std::string& run_dir, const std::string& nonce) noexcept;

}  // namespace ms::watch
