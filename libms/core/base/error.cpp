#include "base/error.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "base/escape.h"
#include "base/log.h"

namespace ms {

std::string_view to_string(Blame blame) {
  switch (blame) {
    case Blame::user: return "user";
    case Blame::node: return "node";
    case Blame::gpu: return "gpu";
    case Blame::fabric: return "fabric";
    case Blame::storage: return "storage";
    case Blame::slurm: return "slurm";
    case Blame::peer: return "peer";
    case Blame::bug: return "bug";
  }
  return "bug";
}

ExitCode exit_code(Blame blame) {
  switch (blame) {
    case Blame::user: return ExitCode::usage;
    case Blame::node:
    case Blame::gpu: return ExitCode::node_fault;
    case Blame::storage: return ExitCode::storage;
    case Blame::fabric:
    case Blame::slurm:
    case Blame::peer: return ExitCode::peer_lost;
    case Blame::bug: return ExitCode::bug;
  }
  return ExitCode::bug;
}

std::string errno_text(int err) {
  char buffer[256];
  return strerror_r(err, buffer, sizeof buffer);  // the GNU variant returns the text
}

void assert_failed(const char* expression, const char* file, int line, const std::string& meaning) {
  std::fprintf(stderr, "ms: bug: %s (%s, at %s:%d)\n", safe_line(meaning).c_str(), expression, file, line);
  std::fflush(stderr);
  // Ranks are threads and often fail together: the first prints the log and leaves, the others wait for that, except
  // one that fails inside the printing itself.
  static std::atomic_flag first_taken = ATOMIC_FLAG_INIT;
  thread_local bool mine = false;
  if (mine) ::_exit(static_cast<int>(ExitCode::bug));
  if (first_taken.test_and_set()) {
    while (true) ::pause();
  }
  mine = true;
  log::dump_recent();
  ::_exit(static_cast<int>(ExitCode::bug));  // the code that job scripts know; abort() would be 134
}

}  // namespace ms
