#include "notify/relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/handle.h"
#include "base/log.h"

namespace ms::notify {
namespace {

namespace fs = std::filesystem;

// Folders of the directory; what is no folder is passed over.
std::vector<std::string> hosts_in(const std::string& directory) {
  std::vector<std::string> hosts;
  std::error_code error;
  fs::directory_iterator entries(directory, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    std::error_code ignored;
    if (entries->symlink_status(ignored).type() == fs::file_type::directory)
      hosts.push_back(entries->path().filename().string());
  }
  if (error) {
    throw Error("notify.relay", Blame::node, fmt::format("cannot list the relay '{}': {}", directory, error.message()),
                "notify.relay_from names a directory that all nodes share and that this user may read");
  }
  std::sort(hosts.begin(), hosts.end());
  return hosts;
}

}  // namespace

std::string leave_event(const std::string& directory, const std::string& host, const health::Event& event) {
  try {
    health::spool_event(directory + "/" + host, event);
    return "";
  } catch (const Error& error) { return error.message(); }
}

void take_events(const std::string& directory, SpooledEvents& events, std::set<std::string>& unread) {
  for (const std::string& host : hosts_in(directory)) {
    try {
      for (auto& [name, event] : health::spooled_events(directory + "/" + host)) {
        events.emplace_back(host + "/" + name, std::move(event));
      }
      unread.erase(host);
    } catch (const Error& error) {
      if (unread.insert(host).second) log::warn("notify", "what {} has left is not sent: {}", host, error.message());
    }
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const auto& a, const auto& b) { return a.second.wall_s < b.second.wall_s; });
}

void remove_event(const std::string& directory, const std::string& name) {
  const fs::path path = fs::path(directory) / name;
  const UniqueFd host(::open(path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if ((!host || ::unlinkat(host.get(), path.filename().c_str(), 0) != 0) && errno != ENOENT)
    log::warn("notify", "cannot remove {}, which was sent: {}", path.string(), errno_text(errno));
}

}  // namespace ms::notify
