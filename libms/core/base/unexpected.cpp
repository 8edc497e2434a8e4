#include "base/unexpected.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/system_error.h"

namespace ms {
namespace {

constexpr const char* kThreadsHint =
    "'ulimit -u', 'ulimit -v' and pids.max of the control group limit them; fewer ranks in a process need fewer "
    "threads";
constexpr const char* kMemory = "out of memory: the system has no more for this process";
constexpr const char* kMemoryHint =
    "'ulimit -v' and memory.max of the control group limit it; fewer ranks in a process need less";

const char* uncaught_tool = "ms";  // for the handler, which is the process's own and has no argument

[[noreturn]] void end_uncaught() noexcept {
  ExitCode code = exit_code(Blame::user);
  if (!std::current_exception()) {
    // Either a bug, or not even an exception could be made.
    if (std::malloc(4096) != nullptr) std::abort();
    std::fprintf(stderr, "%s: error: %s\nhint: %s\n", uncaught_tool, kMemory, kMemoryHint);
    ::_exit(static_cast<int>(code));
  }
  try {
    throw;
  } catch (const std::bad_alloc&) {  // nothing here may need memory
    std::fprintf(stderr, "%s: error: %s\nhint: %s\n", uncaught_tool, kMemory, kMemoryHint);
  } catch (const std::exception& thrown) {
    const Error error = error_of(thrown, "tool.bug");
    code = exit_code(error.blame());
    std::fprintf(stderr, "%s: error: %s\n", uncaught_tool, error.what());
    if (!error.hint().empty()) std::fprintf(stderr, "hint: %s\n", error.hint().c_str());
    if (error.blame() == Blame::bug) log::dump_recent();
  }
  ::_exit(static_cast<int>(code));
}

}  // namespace

Error error_of(const std::exception& thrown, std::string bug_kind) {
  if (const auto* error = dynamic_cast<const Error*>(&thrown)) return *error;
  if (const auto* files = dynamic_cast<const std::filesystem::filesystem_error*>(&thrown)) {
    return {"system.files", Blame::storage, files->what()};
  }
  if (const auto* refused = dynamic_cast<const std::system_error*>(&thrown)) {
    // Nothing but the start of a thread throws this code.
    if (refused->code() == std::errc::resource_unavailable_try_again) {
      return user_error("system.threads",
                        fmt::format("cannot start another thread: {}", errno_text(refused->code().value())),
                        kThreadsHint);
    }
    return system_error("system.call", Blame::node, thrown.what(), refused->code().value());
  }
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr) {
    return user_error("system.memory", kMemory, kMemoryHint);
  }
  return {std::move(bug_kind), Blame::bug, thrown.what()};
}

void spare_address_space() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) ::mallopt(M_ARENA_MAX, 1);
}

void end_on_uncaught(const char* tool) noexcept {
  uncaught_tool = tool;
  std::set_terminate(end_uncaught);
}

}  // namespace ms
