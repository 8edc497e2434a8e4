// Stopping on purpose: SIGTERM, SIGINT, SIGHUP, SIGUSR2 (SIGUSR1 is NCCL's) or a file `stop` in the run's directory. A
// signal is heard by a thread, never in a handler, and nothing happens then: ranks ask at a step's boundary and agree
// on one step. All but SIGUSR2 for the second time, and every signal before there are steps, end the process as if
// nobody had listened.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "base/handle.h"

namespace ms::watch {

class StopRequest {
 public:
  // Before any other thread is started: threads inherit that they do not take these signals. One of a process.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // From now on somebody asks: steps begin.
  void arm() { armed_ = true; }
  // The signal's name, once one has come; from any thread.
  std::optional<std::string> asked() const;

 private:
  void listen();

  std::atomic<bool> armed_ = false;
  std::atomic<int> signal_ = 0;
  UniqueFd signals_, end_;
  std::thread thread_;
};

// The other way to ask; looked at by one rank. A file that an earlier run left is no wish for this one.
class StopFile {
 public:
  explicit StopFile(const std::string& run_dir);
  const std::string& path() const { return path_; }
  // Asks the file system at most five times a second.
  bool asked();
  // The wish was met: the next start is to run.
  void remove();

 private:
  std::string path_;
  std::int64_t next_look_ms_ = 0;
  bool asked_ = false;
};

}  // namespace ms::watch
