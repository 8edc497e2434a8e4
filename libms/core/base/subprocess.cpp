#include "base/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "base/handle.h"

namespace ms {
namespace {

using SteadyClock = std::chrono::steady_clock;

// How long we may be blind to the program's end while its pipes stay open (a daemon it left behind may hold them).
constexpr int kTick_ms = 20;

struct Pipe {
  UniqueFd read_end;
  UniqueFd write_end;
};

Error start_error(const std::string& program, std::string_view what, int err) {
  return Error("subprocess.start", Blame::node, fmt::format("cannot start '{}': {}{}", program, what, errno_text(err)));
}

Pipe make_pipe(const std::string& program) {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) throw start_error(program, "pipe: ", errno);
  Pipe result{UniqueFd(fds[0]), UniqueFd(fds[1])};
  ::fcntl(fds[0], F_SETFL, O_NONBLOCK);  // ours only; the child's end stays as programs expect it
  return result;
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));  // exec's historic signature
  result.push_back(nullptr);
  return result;
}

struct SpawnActions {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  SpawnActions() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  ~SpawnActions() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

pid_t spawn(const std::vector<std::string>& argv, const SubprocessOptions& options, int out_fd, int err_fd) {
  SpawnActions actions;
  posix_spawn_file_actions_addopen(&actions.files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions.files, out_fd, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions.files, err_fd, STDERR_FILENO);
  // Signals that we block or ignore are reset: the child starts as from a shell, as the leader of its own process
  // group.
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  if (options.inherit_ignored_sigterm) sigdelset(&all, SIGTERM);
  posix_spawnattr_setsigmask(&actions.attributes, &none);
  posix_spawnattr_setsigdefault(&actions.attributes, &all);
  posix_spawnattr_setpgroup(&actions.attributes, 0);
  posix_spawnattr_setflags(&actions.attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> environment;
  if (options.environment) environment = pointers(*options.environment);
  pid_t pid = 0;
  const int err = ::posix_spawnp(&pid, argv[0].c_str(), &actions.files, &actions.attributes, pointers(argv).data(),
                                 options.environment ? environment.data() : environ);
  if (err != 0) throw start_error(argv[0], "", err);
  return pid;
}

// One output of the child: drained without blocking, kept up to the bound.
class Stream {
 public:
  Stream(UniqueFd fd, std::size_t max_bytes, std::string& text, bool& truncated)
      : fd_(std::move(fd)), max_bytes_(max_bytes), text_(text), truncated_(truncated) {}

  bool open() const { return static_cast<bool>(fd_); }
  pollfd poll_entry() const { return {fd_.get(), POLLIN, 0}; }  // poll() skips negative descriptors

  // Reads what is there, closes at the end. Bounded, so that a child that never stops writing cannot hold us here.
  void drain() {
    std::array<char, 65536> buffer;
    for (int i = 0; open() && i < 64; ++i) {
      const ssize_t n = ::read(fd_.get(), buffer.data(), buffer.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) return;
      if (n <= 0) {
        fd_.reset();
        return;
      }
      const auto size = static_cast<std::size_t>(n);
      const std::size_t room = max_bytes_ - text_.size();
      text_.append(buffer.data(), std::min(size, room));
      truncated_ = truncated_ || size > room;
    }
  }

 private:
  UniqueFd fd_;
  std::size_t max_bytes_;
  std::string& text_;
  bool& truncated_;
};

// Has the child ended? It is not reaped yet, so its number still names its group.
bool has_ended(pid_t pid) {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    if (errno != EINTR) return true;  // ECHILD: someone else reaped it
  }
  return info.si_pid == pid;
}

SteadyClock::time_point after(SteadyClock::time_point start, double seconds) {
  constexpr double kForever_s = 1e8;  // three years, which the clock's integers can hold
  return start + std::chrono::duration_cast<SteadyClock::duration>(
                     std::chrono::duration<double>(std::min(seconds, kForever_s)));
}

}  // namespace

std::string SubprocessResult::describe() const {
  std::string text = signal != 0 ? fmt::format("killed by signal {} ({})", signal, ::strsignal(signal))
                                 : fmt::format("exit status {}", exit_status);
  return timed_out ? "no answer in time, " + text : text;
}

SubprocessResult run_subprocess(const std::vector<std::string>& argv, const SubprocessOptions& options) {
  return run_subprocess(argv, options, {});
}

SubprocessResult run_subprocess(const std::vector<std::string>& argv, const SubprocessOptions& options,
                                const std::stop_token& stop) {
  MS_ASSERT(!argv.empty(), "a subprocess needs a program");
  SubprocessResult result;
  Pipe out = make_pipe(argv[0]);
  Pipe err = make_pipe(argv[0]);
  const SteadyClock::time_point start = SteadyClock::now();
  const pid_t pid = spawn(argv, options, out.write_end.get(), err.write_end.get());
  out.write_end.reset();
  err.write_end.reset();
  Stream out_stream(std::move(out.read_end), options.max_output_bytes, result.out, result.truncated);
  Stream err_stream(std::move(err.read_end), options.max_output_bytes, result.err, result.truncated);

  const auto term_at = after(start, options.deadline_s);
  auto kill_at = after(term_at, options.kill_grace_s);
  bool killed = false;
  while (!has_ended(pid)) {
    std::array<pollfd, 2> entries{out_stream.poll_entry(), err_stream.poll_entry()};
    // Once both pipes are closed the end is near: look more often than the tick.
    ::poll(entries.data(), entries.size(), out_stream.open() || err_stream.open() ? kTick_ms : 1);
    out_stream.drain();
    err_stream.drain();
    const auto now = SteadyClock::now();
    if (!result.timed_out && (now >= term_at || stop.stop_requested())) {
      result.timed_out = true;
      kill_at = after(now, options.kill_grace_s);
      ::kill(-pid, SIGTERM);
    }
    if (!killed && now >= kill_at) {
      killed = true;
      ::kill(-pid, SIGKILL);
    }
  }
  // The leader obeyed SIGTERM; its children may not have.
  if (result.timed_out) ::kill(-pid, SIGKILL);
  out_stream.drain();
  err_stream.drain();
  int status = 0;
  pid_t reaped = 0;
  do { reaped = ::waitpid(pid, &status, 0); } while (reaped < 0 && errno == EINTR);
  if (reaped != pid) {
    throw Error("subprocess.wait", Blame::bug,
                fmt::format("cannot learn how '{}' ended: {}", argv[0], errno_text(errno)));
  }
  if (WIFSIGNALED(status)) {
    result.signal = WTERMSIG(status);
  } else {
    result.exit_status = WEXITSTATUS(status);
  }
  return result;
}

}  // namespace ms
