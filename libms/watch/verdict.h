// The verdict of a run: why it ended, in run.dir/verdict.json. srun returns only the highest code of its tasks and
// mpirun kills survivors, so this file is what job scripts and the driver read. The first cause wins: it is created,
// never replaced, and clear_verdict() removes that of the run before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"

namespace ms::watch {

struct Verdict {
  ExitCode code = ExitCode::done;
  std::string kind;   // Error::kind(), empty when done
  std::string blame;  // to_string(Blame), empty when done
  std::string message;
  int rank = -1;           // the one to blame, or where the cause is
  std::string node;        // its host
  std::string operation;   // the communication it was noticed in, if any
  std::int64_t step = -1;  // the step the writer was in
};

Verdict verdict_done(std::int64_t steps);
// Stopped on purpose after `steps` steps, in total; `checkpoint` is empty where nothing is saved in this run.
Verdict verdict_stopped(std::int64_t steps, const std::string& cause, const std::string& checkpoint);
Verdict verdict_of(const Error& error, int rank, std::string node, std::int64_t step);

// A failure is being handled: from now on the process ignores SIGTERM. mpirun and srun end the survivors of a dead rank
// with it, a second after the death, and would cut off what they have to say; SIGKILL follows and still works.
void begin_ending() noexcept;

// One rank, before the others start to work.
void clear_verdict(const std::string& run_dir);
// False where another verdict was first, or none could be written. Never throws: the run is ending, and it logs what
// went wrong.
bool write_verdict(const std::string& run_dir, const Verdict& verdict) noexcept;
bool has_verdict(const std::string& run_dir) noexcept;

}  // namespace ms::watch
