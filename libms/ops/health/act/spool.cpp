// Names of events are "<20 digits>.json": nanoseconds since 1970, or one more than the newest name
// where the clock went back, chosen under a lock. A reader that remembers the last name it saw misses none.
#include "health/act/spool.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>

#include "base/lock_file.h"
#include "base/number.h"
#include "base/safe_file.h"
#include "health/act/state_json.h"

namespace ms::health {
namespace {

constexpr std::size_t kMaxEvents = 1000;
constexpr std::size_t kMaxEventBytes = std::size_t{16} << 10;
constexpr std::size_t kMaxNames = 100'000;  // looked at; only a mistake makes more
constexpr double kSpoolLock_s = 1;
constexpr const char* kSpoolLock = ".lock";
constexpr std::size_t kDigits = 20;
constexpr double kLatest_wall_s = 1e10;  // the year 2286; a clock that says more is wrong, and has 20 digits no more
constexpr std::string_view kSuffix = ".json";

constexpr Refusal kSpoolWriteRefusal{.kind = "spool.write", .blame = Blame::node};
constexpr Refusal kSpoolReadRefusal{.kind = "spool.read", .blame = Blame::node};

bool is_event_name(std::string_view name) {
  return name.size() == kDigits + kSuffix.size() && name.ends_with(kSuffix) &&
         name.find_first_not_of("0123456789") == kDigits;
}

struct CloseDirectory {
  void operator()(DIR* stream) const noexcept { ::closedir(stream); }
};

std::vector<std::string> event_names(const UniqueFd& directory, const Refusal& refusal) {
  // A descriptor of its own: readdir moves the place in the directory.
  const int fd = ::openat(directory.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, CloseDirectory> stream(fd < 0 ? nullptr : ::fdopendir(fd));
  if (!stream) throw Error(refusal.kind, refusal.blame, fmt::format("cannot list the spool: {}", errno_text(errno)));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < kMaxNames; ++i) {
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    if (is_event_name(entry->d_name)) names.emplace_back(entry->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::uint64_t number_of(std::string_view name) {
  return leading_number<std::uint64_t>(name.substr(0, kDigits)).value_or(0);
}

UniqueFd open_to_read(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    throw Error("spool.read", Blame::node, fmt::format("cannot open the spool '{}': {}", path, errno_text(errno)));
  }
  UniqueFd directory(fd);
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    throw Error("spool.read", Blame::node, fmt::format("cannot look at the spool '{}': {}", path, errno_text(errno)));
  }
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
    throw Error(
        "spool.read", Blame::node,
        fmt::format("the spool '{}' belongs to user {}, expected root or user {}", path, status.st_uid, ::geteuid()));
  }
  if ((status.st_mode & 022) != 0) {
    throw Error("spool.read", Blame::node, fmt::format("others may write into the spool '{}'", path));
  }
  return directory;
}

// nullopt for what is damaged, and for what made room for a newer one just now.
std::optional<Event> event_of(const UniqueFd& directory, const std::string& name) {
  try {
    const std::optional<std::string> text = read_at(directory, name, kMaxEventBytes, kSpoolReadRefusal);
    return text ? event_from_json(*text) : std::nullopt;
  } catch (const Error&) {  // a link, a directory, unreadable, too large: it must not keep the others from being read
    return std::nullopt;
  }
}

}  // namespace

void spool_event(const std::string& path, const Event& event) {
  const std::string text = event_to_json(event);
  if (text.size() > kMaxEventBytes) {
    throw Error("spool.write", Blame::node, fmt::format("an event takes {} bytes", text.size()));
  }
  const UniqueFd directory = open_own_directory(path, 0755, 0022, kSpoolWriteRefusal);
  const UniqueFd lock = lock_at(directory, kSpoolLock, kSpoolLock_s, kSpoolWriteRefusal);
  std::vector<std::string> names = event_names(directory, kSpoolWriteRefusal);
  // Room is made first: the disk may be full.
  while (names.size() >= kMaxEvents) {
    ::unlinkat(directory.get(), names.front().c_str(), 0);
    names.erase(names.begin());
  }
  const double wall_s = std::isfinite(event.wall_s) ? std::clamp(event.wall_s, 0.0, kLatest_wall_s) : 0;
  const auto now = static_cast<std::uint64_t>(wall_s * 1e9);
  const std::uint64_t number = names.empty() ? now : std::max(now, number_of(names.back()) + 1);
  write_at(directory, fmt::format("{:020}{}", number, kSuffix), text, 0644, kSpoolWriteRefusal);
}

std::vector<std::pair<std::string, Event>> spooled_events(const std::string& path) {
  const UniqueFd directory = open_to_read(path);
  std::vector<std::string> names = event_names(directory, kSpoolReadRefusal);
  if (names.size() > kMaxEvents) names.erase(names.begin(), names.end() - kMaxEvents);
  std::vector<std::pair<std::string, Event>> events;
  for (const std::string& name : names) {
    std::optional<Event> event = event_of(directory, name);
    if (event) events.emplace_back(name, std::move(*event));
  }
  return events;
}

}  // namespace ms::health
