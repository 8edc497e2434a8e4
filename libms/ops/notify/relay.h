// Events of nodes from which no alert gets out: the notifier of each node leaves them in a directory that all nodes
// share, in a folder of its own, and the notifier of a login node takes them from there. Both are the same user, and
// no other user may write there. The directory may hang or be gone: that delays notifiers, for which no process waits,
// and no job.
#pragma once

#include <string>

#include "notify/notifier.h"

namespace ms::notify {

// Leaves an event in the folder of `host` in the directory, of which the newest 1000 stay. Returns why it could not.
std::string leave_event(const std::string& directory, const std::string& host, const health::Event& event);

// Adds what all nodes have left to `events`, as "HOST/NAME", and sorts all by time. A folder that is not this user's,
// or cannot be read, is said in the log when `unread`, the folders of which that was said, does not hold it, and keeps
// no other from being read. Throws Error("notify.relay") where the directory itself cannot be read.
void take_events(const std::string& directory, SpooledEvents& events, std::set<std::string>& unread);

// Removes an event that take_events() named, once every target knows it.
void remove_event(const std::string& directory, const std::string& name);

}  // namespace ms::notify
