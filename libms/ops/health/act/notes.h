// The run-time directory (/run/ms-diag, root's, 0755): notes for jobs, which the plugin shows in the job's stderr, and
// the lock of who decides about this node. It lies in memory, so it works on a node whose disk does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/handle.h"

namespace ms::health {

inline constexpr std::size_t kMaxNoteBytes = 4096;

// All of it throws Error("notes", node).
class Notes {
 public:
  // Makes the directory if it is not there; refused where others may write into it.
  explicit Notes(const std::string& path);

  // "job-<id>", mode 0644: the lines, made printable, as many of the newest as fit. Replaces what was there.
  void write(std::uint32_t job, const std::vector<std::string>& lines) const;
  void remove(std::uint32_t job) const;  // that there is none is fine

  // Who holds it decides about the node; an empty handle: another process does. It goes with the handle.
  UniqueFd try_lock_decision() const;

 private:
  UniqueFd directory_;
};

}  // namespace ms::health
