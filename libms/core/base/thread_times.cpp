#include "base/thread_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>

namespace ms {

ThreadTimes thread_times(const Sysroot& root, int pid) {
  ThreadTimes times;
  const std::string directory = fmt::format("/proc/{}/task", pid);
  for (const std::string& name : root.list(directory)) {
    std::istringstream text(root.read(fmt::format("{}/{}/schedstat", directory, name)).value_or(""));
    int thread = 0;
    ThreadTime time;
    if (std::istringstream(name) >> thread && text >> time.ran_ns >> time.waited_ns) times[thread] = time;
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

}  // namespace ms
