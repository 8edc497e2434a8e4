// Requests to stop a run: SIGTERM, SIGINT, SIGHUP, SIGUSR2 (NCCL uses SIGUSR1) or a file `stop` in the run's directory.
// A thread receives the signals, not a handler, and only sets a flag: ranks read it with each step and each batch of an
// evaluation, and agree on the one to stop after. A second SIGINT or SIGHUP, and every signal before the first step,
// have their default action; launchers repeat the others.
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
  // Must be constructed before any other thread is started, because threads inherit the blocked signal mask. One per
  // process.
  StopRequest();
  ~StopRequest();
  StopRequest(const StopRequest&) = delete;
  StopRequest& operator=(const StopRequest&) = delete;

  // Called when the first step begins: from now on signals set the flag.
  void arm() { armed_ = true; }
  // Returns the signal's name once one was received; from any thread.
  std::optional<std::string> asked() const;

 private:
  void listen();

  std::atomic<bool> armed_ = false;
  std::atomic<int> signal_ = 0;
  UniqueFd signals_, end_;
  std::thread thread_;
};

// The stop file; checked by one rank. A file left by an earlier run is removed at construction, unless the run goes on.
class StopFile {
 public:
  explicit StopFile(const std::string& run_dir, bool goes_on = false);
  const std::string& path() const { return path_; }
  // Returns whether the file exists; accesses the file system at most five times a second.
  bool asked();
  // Removes the file once the run has stopped, so that the next start runs.
  void remove();

 private:
  std::string path_;
  std::int64_t next_look_ms_ = 0;
  bool asked_ = false;
};

}  // namespace ms::watch
