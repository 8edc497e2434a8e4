// Evidence that a process of a run leaves for people when a wait of the run has expired: the stacks of its threads, the
// state of the process at fault where that is on this node, and of the host. It is taken at once, before anything moves
// on, and written later, because storage may be what hangs.
#pragma once

#include <mutex>
#include <string>

namespace ms::watch {

class Evidence {
 public:
  // `why`: what expired. `blamed_pid`: of the rank that is blamed; 0: it is on another node, or none is.
  void take(const std::string& why, int blamed_pid) noexcept;
  // Writes what was taken to run.dir/evidence/NONCE/`name`, where the directory is that start's; returns the path of
  // the file. Empty: nothing was taken, or it could not be written, which is logged.
  std::string write(const std::string& run_dir, const std::string& nonce, const std::string& name) noexcept;

 private:
  std::mutex mutex_;
  std::string text_;
};

// Removes the evidence of all but the last few starts. Called by the rank that has the directory.
void prune_evidence(const std::string& run_dir) noexcept;

}  // namespace ms::watch
