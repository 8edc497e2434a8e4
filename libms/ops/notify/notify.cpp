#include "notify/notify.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/file.h"
#include "base/handle.h"
#include "base/lock_file.h"
#include "base/log.h"
#include "health/act/spool.h"
#include "notify/notifier.h"
#include "notify/relay.h"

namespace ms::notify {
namespace {

constexpr int kAllSent = 0, kSomeWait = 1;

// A second notifier with the same state would tell everything twice.
UniqueFd lock_state(const std::string& directory) {
  make_directories(directory);
  const UniqueFd state(::open(directory.c_str(), O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const int error = errno;
  struct stat status {};
  if (!state || ::fstat(state.get(), &status) != 0 || status.st_uid != ::geteuid()) {
    const bool link = error == ELOOP || error == ENOTDIR;  // who may change it could lead the notifier elsewhere
    throw Error("file.open", Blame::storage,
                fmt::format("{} is no directory for notify.state: {}", directory,
                            state  ? "it belongs to another user"
                            : link ? "it is a link or a file"
                                   : errno_text(error)),
                "name a directory of the notifier's own user, and not a link to one");
  }
  UniqueFd lock = try_lock_at(state, "lock", {.kind = "file.open", .blame = Blame::storage});
  if (!lock) throw user_error("notify.busy", fmt::format("another notifier is at work in {}", directory));
  return lock;
}

std::string this_host() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string name(host.data());
  return name.substr(0, name.find('.'));
}

// On a node about which nothing was ever decided there is no spool yet.
SpooledEvents events_in(const std::string& spool) {
  if (::access(spool.c_str(), F_OK) != 0 && errno == ENOENT) return {};
  return health::spooled_events(spool);
}

void report(const Look& look) {
  if (look.num_too_old > 0) log::info("notify", "{} events are too old to be news", look.num_too_old);
  if (look.num_sent > 0 || look.num_waiting > 0) {
    log::info("notify", "{} messages sent, {} wait for another time", look.num_sent, look.num_waiting);
  }
}

}  // namespace

int notify(const health::NotifyOptions& options) {
  if (::getuid() == 0 || ::geteuid() == 0) {
    throw user_error("notify.root", "notify does not run as root: no root process of ms speaks HTTP",
                     "run it as a user of its own that may read the spool");
  }
  const NotifyConfig config = load_notify_config(options.config, options.run);
  const UniqueFd lock = lock_state(config.state);
  SystemClock clock;
  Notifier notifier(
      config, load_outbox(config.state), clock, http_post,
      [&](const Outbox& outbox) { save_outbox(config.state, outbox); },
      [&, host = this_host()](const health::Event& event) { return leave_event(config.relay_to, host, event); });
  std::set<std::string> unread;
  while (true) {
    SpooledEvents events = events_in(config.spool);
    if (!config.relay_from.empty()) take_events(config.relay_from, events, unread);
    const Look look = notifier.look(events);
    report(look);
    for (const auto& [name, event] : events) {
      const bool was_relayed = name.find('/') != std::string::npos;
      if (was_relayed && notifier.all_know(name)) remove_event(config.relay_from, name);
    }
    if (options.once) return look.num_waiting == 0 ? kAllSent : kSomeWait;
    clock.sleep_s(config.poll_s);
  }
}

}  // namespace ms::notify
