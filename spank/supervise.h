// SPDX-License-Identifier: GPL-2.0-or-later
// Runs one program for root and never longer than it is given: in a process group of its own, with nothing of ours in
// it but the environment that is handed over, no open file but /dev/null and the pipe that takes what it prints. When
// it has ended, or its time is over, its whole group is killed. A process that cannot be killed is left behind.
#pragma once

#include <string>
#include <vector>

namespace ms::spank {

struct Run {
  std::vector<std::string> argv;         // argv[0] is an absolute path; there is no shell and no PATH
  std::vector<std::string> environment;  // "NAME=value"
  double deadline_s = 0;
  std::size_t keep_output_bytes = 1024;  // of what it prints, the first; the rest is read and dropped
};

enum class Ending {
  exited,       // code is its exit status
  signalled,    // code is the signal
  late,         // it was killed, or left behind, at the deadline
  not_started,  // code is the error of the system
  lost          // it ended, but somebody else took its status
};

struct Outcome {
  Ending ending = Ending::not_started;
  int code = 0;
  std::string output;  // standard output and error, as it came

  std::string describe() const;  // "ended with exit status 3"
};

Outcome supervise(const Run& run);

}  // namespace ms::spank
