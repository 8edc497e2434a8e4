#include "watch/stacks.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/number.h"
#include "base/text.h"

namespace ms::watch {
namespace {

constexpr std::size_t kMostThreads = 64, kMostStacks_bytes = 16384;
constexpr int kMostFrames = 48;
constexpr int kOwnFrames = 2;  // the handler of the signal, and what called it
constexpr std::size_t kMostName_bytes = 160;
constexpr std::chrono::milliseconds kAnswersWithin{500};

ProcessStat stat_in(const Sysroot& root, const std::string& directory) {
  const std::optional<std::string> text = root.read(directory + "/stat");
  const std::size_t name_end = text ? text->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return {};
  // Behind the name: state is field 3, utime and stime 14 and 15, starttime 22.
  const std::vector<std::string> fields = split(trim(std::string_view(*text).substr(name_end + 1)), ' ');
  constexpr std::size_t kState = 0, kUser = 11, kSystem = 12, kStarted = 19;
  if (fields.size() <= kStarted || fields[kState].size() != 1) return {};
  return {.state = fields[kState][0],
          .ticks = whole_number<std::uint64_t>(fields[kUser]).value_or(0) +
                   whole_number<std::uint64_t>(fields[kSystem]).value_or(0),
          .started = whole_number<std::uint64_t>(fields[kStarted]).value_or(0)};
}

std::string thread_line(const Sysroot& root, const std::string& tasks, const std::string& thread) {
  const std::string directory = fmt::format("{}/{}", tasks, thread);
  return fmt::format("thread {} {} {} in {}\n", thread, root.read(directory + "/comm").value_or(""),
                     stat_in(root, directory).state, root.read(directory + "/wchan").value_or("?"));
}

// Where a thread leaves its stack. One that answers too late still finds it: such a slot is never freed.
struct StackSlot {
  std::array<void*, kMostFrames> frames{};
  std::atomic<int> count{-1};
};

// Runs in the thread that is asked, whatever that does: calls nothing but backtrace(), which own_stacks() has called
// before, as its first call allocates.
void leave_stack(int, siginfo_t* info, void*) {
  if (info->si_code != SI_QUEUE || info->si_pid != getpid() || info->si_value.sival_ptr == nullptr) return;
  const int err = errno;
  auto* slot = static_cast<StackSlot*>(info->si_value.sival_ptr);
  slot->count.store(backtrace(slot->frames.data(), kMostFrames), std::memory_order_release);
  errno = err;
}

bool ask_thread(int thread, StackSlot& slot) {
  siginfo_t info;
  std::memset(&info, 0, sizeof info);
  info.si_signo = SIGURG;
  info.si_code = SI_QUEUE;
  info.si_pid = getpid();
  info.si_uid = getuid();
  info.si_value.sival_ptr = &slot;
  return syscall(SYS_rt_tgsigqueueinfo, getpid(), thread, SIGURG, &info) == 0;
}

// "ms::train::Engine::finish_step(long) in libms.so+0x1234", for addr2line where the function is not known.
std::string frame_text(const void* address) {
  Dl_info found{};
  if (dladdr(address, &found) == 0 || found.dli_fname == nullptr) return fmt::format("? at {}", address);
  std::string name = "?";
  if (found.dli_sname != nullptr) {
    char* plain = abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, nullptr);
    name = std::string(plain != nullptr ? plain : found.dli_sname).substr(0, kMostName_bytes);
    std::free(plain);
  }
  const std::string_view file = found.dli_fname;
  return fmt::format("{} in {}+{:#x}", name, file.substr(file.rfind('/') + 1),
                     static_cast<const char*>(address) - static_cast<const char*>(found.dli_fbase));
}

std::string frames_text(const void* const* frames, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("  #{} {}\n", i, frame_text(frames[i]));
  return text;
}

}  // namespace

ProcessStat process_stat(const Sysroot& root, int pid) { return stat_in(root, fmt::format("/proc/{}", pid)); }

std::string kernel_stacks(const Sysroot& root, int pid) {
  const std::string tasks = fmt::format("/proc/{}/task", pid);
  std::string text;
  std::size_t threads = 0;
  for (const std::string& thread : root.list(tasks)) {
    if (++threads > kMostThreads || text.size() > kMostStacks_bytes) return text + "...\n";
    text += thread_line(root, tasks, thread);
  }
  return text;
}

std::string own_stacks() {
  std::array<void*, kMostFrames> here{};
  const int depth = backtrace(here.data(), kMostFrames);
  struct sigaction ask {
  }, before{};
  ask.sa_sigaction = leave_stack;
  ask.sa_flags = SA_SIGINFO | SA_RESTART;
  sigemptyset(&ask.sa_mask);
  if (sigaction(SIGURG, &ask, &before) != 0) return kernel_stacks(Sysroot(), getpid());

  const Sysroot root;
  const std::string tasks = "/proc/self/task";
  const auto self = static_cast<int>(syscall(SYS_gettid));
  struct Asked {
    std::string name, line;
    bool is_self = false;
    std::unique_ptr<StackSlot> slot;  // of a thread that was asked
  };
  std::vector<Asked> threads;
  const std::vector<std::string> names = root.list(tasks);
  for (const std::string& name : names) {
    if (threads.size() == kMostThreads) break;
    Asked& thread = threads.emplace_back();
    thread.name = name;
    thread.line = thread_line(root, tasks, name);
    const std::optional<int> id = whole_number<int>(name);
    thread.is_self = id == self;
    if (!id || thread.is_self) continue;
    thread.slot = std::make_unique<StackSlot>();
    if (!ask_thread(*id, *thread.slot)) thread.slot.reset();  // it has ended
  }
  const auto is_open = [](const Asked& thread) { return thread.slot && thread.slot->count < 0; };
  const auto end = std::chrono::steady_clock::now() + kAnswersWithin;
  while (std::ranges::any_of(threads, is_open) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));

  std::string text;
  bool all = true;
  for (Asked& thread : threads) {
    text += thread.line;
    if (thread.is_self) {
      text += frames_text(here.data(), depth);
    } else if (is_open(thread)) {
      text += "  did not answer\n";
      all = false;
      static_cast<void>(thread.slot.release());  // it may answer yet
    } else if (thread.slot) {
      const int count = thread.slot->count.load(std::memory_order_acquire);
      text += frames_text(thread.slot->frames.data() + kOwnFrames, count - kOwnFrames);
    }
  }
  if (names.size() > threads.size()) text += fmt::format("and {} more threads\n", names.size() - threads.size());
  if (all) sigaction(SIGURG, &before, nullptr);
  return text;
}

}  // namespace ms::watch
