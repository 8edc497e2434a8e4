#include "health/evidence/mount_probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/handle.h"
#include "base/sysroot.h"
#include "health/evidence/busy.h"

namespace ms::health {
namespace {

constexpr const char* kProcessName = "ms-mount-ask";
constexpr double kReapPatience_s = 0.02;

struct Message {  // one write of less than PIPE_BUF: never mixed with another's
  std::uint32_t index;
  std::int32_t error;
};

// In the child. Nothing of ours stays open in it: a reader of our pipes must not wait for it.
[[noreturn]] void answer_and_exit(std::uint32_t index, const std::string& path, int pipe,
                                  const std::function<int(const std::string&)>& ask) {
  ::prctl(PR_SET_NAME, kProcessName);
  const int null = ::open("/dev/null", O_RDWR);
  for (int fd = 0; fd < 3; ++fd) ::dup2(null, fd);
  if (pipe != 3) ::dup2(pipe, 3);
  ::syscall(SYS_close_range, 4U, ~0U, 0U);
  const Message message{index, ask(path)};
  const ssize_t written = ::write(3, &message, sizeof message);
  _exit(written == sizeof message ? 0 : 1);
}

// Finds out of those that have not answered whom the node kept from it.
void excuse(const std::vector<pid_t>& processes, std::vector<Answer>& answers, double deadline_s) {
  std::optional<bool> busy;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (processes[i] <= 0 || answers[i].answered) continue;
    siginfo_t gone{};
    ::waitid(P_PID, static_cast<id_t>(processes[i]), &gone, WEXITED | WNOHANG | WNOWAIT);
    answers[i].excused = gone.si_pid != 0 || lacked_cpu({}, cpu_time(processes[i]), deadline_s);
    if (answers[i].excused) continue;
    if (!busy) busy = control_is_late();
    answers[i].excused = *busy;
  }
}

// Reaps what is gone; kills what is not, and leaves behind what does not die.
void end_processes(const std::vector<pid_t>& processes, std::vector<Answer>& answers) {
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (processes[i] > 0 && !answers[i].answered) ::kill(processes[i], SIGKILL);
  }
  std::vector<bool> gone(processes.size(), false);
  for (const double end_s = monotonic_s() + kReapPatience_s;;) {
    bool all = true;
    for (std::size_t i = 0; i < processes.size(); ++i) {
      if (!gone[i]) gone[i] = processes[i] <= 0 || ::waitpid(processes[i], nullptr, WNOHANG) != 0;
      all = all && gone[i];
    }
    if (all || monotonic_s() >= end_s) break;
    const timespec pause{0, 500'000};
    ::nanosleep(&pause, nullptr);
  }
  for (std::size_t i = 0; i < processes.size(); ++i) {
    if (!gone[i] && !answers[i].answered && !answers[i].excused) answers[i].left_behind = processes[i];
  }
}

}  // namespace

int ask_path(const std::string& path) {
  struct statfs filesystem {};
  struct stat status {};
  if (::statfs(path.c_str(), &filesystem) != 0 || ::stat(path.c_str(), &status) != 0) {
    return errno == EACCES ? 0 : errno;
  }
  if (!S_ISDIR(status.st_mode)) return 0;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return errno == EACCES || errno == EPERM ? 0 : errno;
  alignas(dirent64) std::array<char, 4096> names;
  return ::getdents64(fd.get(), names.data(), names.size()) < 0 ? errno : 0;
}

std::vector<Answer> ask_paths(const std::vector<std::string>& paths, double deadline_s,
                              const std::function<int(const std::string&)>& ask) {
  std::vector<Answer> answers(paths.size());
  std::vector<pid_t> processes(paths.size(), 0);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
    throw Error("mounts.pipe", Blame::node, "pipe: " + errno_text(errno));
  }
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const double end_s = monotonic_s() + deadline_s;
  std::size_t awaited = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    processes[i] = i < kMaxAsked ? ::fork() : -1;
    if (processes[i] == 0) answer_and_exit(static_cast<std::uint32_t>(i), paths[i], writer.get(), ask);
    if (processes[i] < 0) answers[i] = {.answered = true, .error = i < kMaxAsked ? errno : EAGAIN};
    if (processes[i] > 0) ++awaited;
  }
  writer.reset();
  while (awaited > 0) {
    const double left_s = std::max(0.0, end_s - monotonic_s());  // what is here counts even if this process is late
    pollfd polled{reader.get(), POLLIN, 0};
    if (::poll(&polled, 1, static_cast<int>(std::ceil(left_s * 1000))) <= 0) {
      if (left_s <= 0) break;
      continue;
    }
    Message message{};
    const ssize_t got = ::read(reader.get(), &message, sizeof message);
    if (got == 0) break;  // all are gone, somebody without a word
    if (got != sizeof message || message.index >= answers.size()) continue;
    answers[message.index] = {.answered = true, .error = message.error};
    --awaited;
  }
  excuse(processes, answers, deadline_s);
  end_processes(processes, answers);
  return answers;
}

bool still_waits(pid_t process) {
  const Sysroot root;
  struct stat status {};
  const std::string directory = fmt::format("/proc/{}", process);
  if (process <= 0 || ::stat(directory.c_str(), &status) != 0 || status.st_uid != ::geteuid()) return false;
  const std::optional<std::string> text = root.read(directory + "/stat", 4096);
  const std::string name = fmt::format(" ({}) ", kProcessName);
  const std::size_t at = text ? text->find(name) : std::string::npos;
  if (at == std::string::npos || at + name.size() >= text->size()) return false;
  const char state = (*text)[at + name.size()];
  return state == 'D' || state == 'S';  // one that was killed and only waits for a CPU will be gone
}

}  // namespace ms::health
