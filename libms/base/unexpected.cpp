#include "base/unexpected.h"

#include <new>
#include <system_error>
#include <utility>

namespace ms {

Error error_of(const std::exception& thrown, std::string bug_kind) {
  // Nothing but the start of a thread throws this code.
  const auto* refused = dynamic_cast<const std::system_error*>(&thrown);
  if (refused != nullptr && refused->code() == std::errc::resource_unavailable_try_again) {
    return user_error("system.threads",
                      fmt::format("cannot start another thread: {}", errno_text(refused->code().value())),
                      "'ulimit -u', 'ulimit -v' and pids.max of the control group limit them; fewer ranks in a process "
                      "need fewer threads");
  }
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr) {
    return user_error("system.memory", "out of memory: the system has no more for this process",
                      "'ulimit -v' and memory.max of the control group limit it; fewer ranks in a process need less");
  }
  return {std::move(bug_kind), Blame::bug, thrown.what()};
}

}  // namespace ms
