// The state that a node keeps between jobs, in a local directory that is root's alone (0700), bounded in size and
// opened without following links: counters of the last run, when the node was last undrained, strikes, when an epilog
// last ran the checks, and a history of decisions. A state that cannot be read or written counts as empty: nothing
// fails because of it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/handle.h"
#include "base/sysroot.h"
#include "health/evidence/evidence.h"

namespace ms::health {

struct State {
  Counters counters;
  double last_undrain_wall_s = 0;
  double last_undrain_s = 0;      // the same, as the monotonic clock of that boot counts
  std::string undrain_boot = {};  // of which boot that is; empty: not known
  double last_epilog_wall_s = 0;
  double last_active_wall_s = 0;  // when the checks of level 2 last ran here, as root
  int strikes = 0;                // drains since the node was new; a relapse after an undrain counts
};

// That the node is undrained now.
void note_undrain(State& state, const Sysroot& root, const Clock& clock);
// Returns since when the kernel's log counts, by the clock as it is set now: the last undrain, whatever was done to the
// clock since. 0: all of this boot's log counts.
double since_undrain(const State& state, const Sysroot& root, const Clock& clock);

struct HistoryEntry {
  double wall_s = 0;
  std::string event;  // "drain", "would-drain", "undrain", "withdrawn", "refused", "finding", ...
  std::string code;
  std::string message;
  std::uint32_t job_id = 0;
  int strikes = 0;
};

class StateDirectory {
 public:
  // Makes the directory if it is not there. Throws Error("state.directory", node) where the directory does not belong
  // to the caller, or another user may enter it.
  explicit StateDirectory(const std::string& path);

  // A damaged file counts as empty. A file that is not ours to read (a link, somebody else's) is refused with
  // Error("state.read", node).
  State load() const;
  std::vector<HistoryEntry> history() const;  // oldest first

  // These throw Error("state.write", node), and leave what was there. Two processes never write at once; who writes
  // back what was read before uses update(), so that nothing is lost in between.
  void update(const std::function<void(State&)>& change) const;  // atomically, where it changes anything
  void append_history(const HistoryEntry& entry) const;          // the oldest are dropped: the file stays under 1 MiB

 private:
  void write(const State& state) const;  // the lock is held
  UniqueFd directory_;
};

}  // namespace ms::health
