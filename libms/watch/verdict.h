// The verdict of a run: why it ended, in run.dir/verdict.json. srun returns only the highest code of its tasks and
// mpirun kills survivors, so job scripts and the driver read this file. The first cause wins: the file is created,
// never replaced, and clear_verdict() removes that of the previous run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"

namespace ms::watch {

struct Verdict {
  ExitCode code = ExitCode::done;
  std::string kind;   // Error::kind(), empty when done
  std::string blame;  // to_string(Blame), empty when done, and when stopped: nobody failed
  std::string message;
  int rank = -1;           // the rank to blame, or the rank that failed
  std::string node;        // its host
  std::string operation;   // the communication operation that noticed the failure, if any
  std::int64_t step = -1;  // the step the writer was in
};

Verdict verdict_done(std::int64_t steps);
// The run was stopped on request after `steps` steps in total; `checkpoint` is empty if this run saves nothing.
Verdict verdict_stopped(std::int64_t steps, const std::string& cause, const std::string& checkpoint);
Verdict verdict_of(const Error& error, int rank, std::string node, std::int64_t step);

// Called when a failure is being handled: from now on the process ignores SIGTERM. mpirun and srun send it to the
// survivors of a dead rank after a second, which would cut off their error messages; SIGKILL follows and still works.
void begin_ending() noexcept;

// Removes the verdict of the previous run. Called by one rank, before the others start to work.
void clear_verdict(const std::string& run_dir);
// Returns false if a verdict exists or none could be written. Never throws, because the run is ending; logs the
// failure.
bool write_verdict(const std::string& run_dir, const Verdict& verdict) noexcept;
bool has_verdict(const std::string& run_dir) noexcept;

}  // namespace ms::watch
