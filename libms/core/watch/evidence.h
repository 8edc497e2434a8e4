// Evidence that a process of a run leaves for people when a wait of the run has expired: the stacks of its threads, the
// state of the process at fault where that is on this node, and of the host and its devices. It is taken at once,
// before anything moves on, and written later, because storage may be what hangs.
#pragma once

#include <future>
#include <mutex>
#include <string>

namespace ms::watch {

class Evidence {
 public:
  // `why`: what expired. `blamed_pid`: of the rank that is blamed; 0: it is on another node, or none is. `diag`: the
  // ms-diag that begins to read the state of the node's devices, on a thread of its own; empty: another process of this
  // node has it read.
  void take(const std::string& why, int blamed_pid, const std::string& diag = {}) noexcept;
  // Writes what was taken to run.dir/evidence/NONCE/`name`, where the directory is that start's; returns the path of
  // the file. Empty: nothing was taken, or it could not be written, which is logged.
  std::string write(const std::string& run_dir, const std::string& nonce, const std::string& name) noexcept;
  // Does the same with the state of the devices, as devices-NODE.txt, and waits until they are read: see device_state()
  // for how long that is at most. For the end, when all else is said.
  void write_devices(const std::string& run_dir, const std::string& nonce, const std::string& node) noexcept;

 private:
  std::mutex mutex_;
  std::string text_;
  std::future<std::string> devices_;
};

// Removes the evidence of all but the last few starts. Called by the rank that has the directory.
void prune_evidence(const std::string& run_dir) noexcept;

}  // namespace ms::watch
