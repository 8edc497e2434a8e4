#include "base/thread_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>

#include "base/clock.h"

namespace ms {
namespace {

std::optional<ThreadTime> read_times(const Sysroot& root, const std::string& path) {
  std::istringstream text(root.read(path).value_or(""));
  ThreadTime time;
  return text >> time.ran_ns >> time.waited_ns ? std::optional(time) : std::nullopt;
}
std::int64_t own_waited_ns() {
  return read_times(Sysroot(), "/proc/thread-self/schedstat").value_or(ThreadTime{}).waited_ns;
}

}  // namespace

ThreadTimes thread_times(const Sysroot& root, int pid) {
  ThreadTimes times;
  const std::string directory = fmt::format("/proc/{}/task", pid);
  for (const std::string& name : root.list(directory)) {
    const std::optional<ThreadTime> time = read_times(root, fmt::format("{}/{}/schedstat", directory, name));
    int thread = 0;
    if (std::istringstream(name) >> thread && time) times[thread] = *time;
  }
  return times;
}

double longest_wait_s(const ThreadTimes& before, const ThreadTimes& after) {
  std::int64_t longest_ns = 0;
  for (const auto& [thread, now] : after) {
    const auto then = before.find(thread);
    longest_ns = std::max(longest_ns, now.waited_ns - (then == before.end() ? 0 : then->second.waited_ns));
  }
  return 1e-9 * static_cast<double>(longest_ns);
}

OwnWaits::OwnWaits() : waited_ns_(own_waited_ns()), begin_s_(monotonic_s()) {}

double OwnWaits::share() const {
  const double waited_s = 1e-9 * static_cast<double>(own_waited_ns() - waited_ns_), all_s = monotonic_s() - begin_s_;
  return all_s > 0 ? std::clamp(waited_s / all_s, 0.0, 1.0) : 0;
}

}  // namespace ms
