// Whether mounts answer. A mount of a dead server holds whoever asks it in uninterruptible sleep, so every path is
// asked in a process of its own, all at the same time, and one that does not answer is killed, left behind and never
// waited for: it dies when the server comes back. Used by disk.mounts.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace ms::health {

// Asks one path all that a job would: the server (statfs), the file (stat), and its first names. Returns 0 or the errno
// of the first that failed; a name that may not be read (EACCES) is an answer.
int ask_path(const std::string& path);

struct Answer {
  bool answered = false;
  bool excused = false;   // not answered, and the path is not to blame: the node is busy, or the process was killed
  int error = 0;          // errno, 0: all is well
  pid_t left_behind = 0;  // the process that still waits, if it did not even die
};

inline constexpr std::size_t kMaxAsked = 64;  // at the same time; what is beyond is answered with EAGAIN

// In the order of `paths`; never takes much longer than deadline_s and kControl_s.
std::vector<Answer> ask_paths(const std::vector<std::string>& paths, double deadline_s,
                              const std::function<int(const std::string&)>& ask = ask_path);

// Whether this process is one that ask_paths of an earlier run left behind, and still there.
bool still_waits(pid_t process);

}  // namespace ms::health
