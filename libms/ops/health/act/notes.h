// The run-time directory (/run/ms-diag, root's, 0755): notes for jobs, which the plugin shows in the job's stderr, when
// the node was undrained, and the lock of who decides about this node. It lies in memory, so it works on a node whose
// disk does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/handle.h"
#include "health/act/state.h"

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

  // Lets users see of the state when the node was undrained, and nothing else.
  void publish_undrain(const State& state) const;

  // Who holds it decides about the node; an empty handle: another process does. It goes with the handle.
  UniqueFd try_lock_decision() const;

 private:
  UniqueFd directory_;
};

// Returns what was published in this directory; an empty state where there is nothing. Refuses a file that others than
// root may have written.
State published_undrain(const std::string& path);

}  // namespace ms::health
