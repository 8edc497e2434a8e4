// Runs another program, bounded in time and in output: what Slurm's commands, ms-diag and others are asked through.
// Arguments are a list, there is no shell. Standard input is /dev/null. The child leads its own process group.
#pragma once

#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace ms {

struct SubprocessOptions {
  // After deadline_s the group gets SIGTERM, kill_grace_s later SIGKILL.
  double deadline_s = 60;
  double kill_grace_s = 2;
  std::size_t max_output_bytes = std::size_t{16} << 20;      // of each stream; what comes after is read and dropped
  std::optional<std::vector<std::string>> environment = {};  // "NAME=value"; nullopt: ours
  bool inherit_ignored_sigterm = false;                      // where we ignore SIGTERM, the child begins so too
};

struct SubprocessResult {
  int exit_status = 0;  // meaningful if signal is 0
  int signal = 0;       // that ended the program, or 0
  bool timed_out = false;
  bool truncated = false;  // one of the outputs was longer than max_output_bytes
  std::string out;
  std::string err;

  bool ok() const { return signal == 0 && exit_status == 0 && !timed_out; }
  // "exit status 3", "killed by signal 9 (Killed)", "no answer in time, ..."
  std::string describe() const;
};

// Looks argv[0] up in PATH. A program that ends badly, or late, is a value; Error("subprocess.start", node) is thrown
// only where it cannot be started. Output that descendants write after the program itself has ended is not waited for.
SubprocessResult run_subprocess(const std::vector<std::string>& argv, const SubprocessOptions& options = {});
// The same; once a stop is requested, the group ends as at the deadline.
SubprocessResult run_subprocess(const std::vector<std::string>& argv, const SubprocessOptions& options,
                                const std::stop_token& stop);

}  // namespace ms
