// The spool of events, which a prolog or an epilog writes and `ms-diag notify` reads.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ms::health {

// Events for `ms-diag notify`: a file each in a directory of root's that others may read, at most 1000 of them, the
// oldest go first. The names sort in the order in which the events were written, whatever the clock did.
struct Event {
  double wall_s = 0;
  std::string kind;  // "drain", "would-drain", "withdrawn", "undrain", "strike"; of a run: "run-interrupted", ...
  std::string node;
  std::string code;
  std::string message;
  std::uint32_t job_id = 0;
  int strikes = 0;
};

void spool_event(const std::string& directory, const Event& event);  // throws Error("spool.write", node)
// Name and event, oldest first, the newest 1000; what is damaged or no plain file is left out. Throws
// Error("spool.read", node) where the directory is not there, is neither root's nor the caller's, or others may write
// into it.
std::vector<std::pair<std::string, Event>> spooled_events(const std::string& directory);

}  // namespace ms::health
