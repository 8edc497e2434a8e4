// SPDX-License-Identifier: GPL-2.0-or-later
#include "supervise.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

namespace ms::spank {
namespace {

constexpr int kFirstFreeFd = 4;  // of the child: 0, 1, 2 and the pipe that tells why it could not start
constexpr int kStatusFd = 3;
constexpr int kLookAgainMs = 1;      // its pipe is closed, so it is about to end
constexpr int kLookEveryMs = 10;     // an end that closes no pipe is seen this late at most
constexpr double kKillGraceS = 0.5;  // for the kernel to end what was killed
constexpr rlim_t kOpenFiles = 1024;
constexpr int kMostFdsByHand = 1 << 20;  // where the kernel is too old for close_range

double now_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// One end of a pipe, or a file. Never 0, 1 or 2, also where the host has closed those: the child needs them for itself.
class Fd {
 public:
  explicit Fd(int fd = -1) { reset(fd); }
  ~Fd() { reset(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
    if (fd_ < 0 || fd_ > 2) return;
    fd_ = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    close(fd);
  }

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read, write;
  bool open() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return false;
    read.reset(fds[0]);
    write.reset(fds[1]);
    return read && write;
  }
};

// SIGCHLD as it is for a program that has just started, while we wait for a child of ours.
class DefaultSigchld {
 public:
  DefaultSigchld() {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &action, &before_);
  }
  ~DefaultSigchld() { sigaction(SIGCHLD, &before_, nullptr); }
  DefaultSigchld(const DefaultSigchld&) = delete;
  DefaultSigchld& operator=(const DefaultSigchld&) = delete;

 private:
  struct sigaction before_ {};
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

// ---- in the child: between fork and exec only what may be called there (signal-safety(7)), no memory is taken

void limit(__rlimit_resource_t what, rlim_t most) {
  rlimit now{};
  if (getrlimit(what, &now) != 0) return;
  now.rlim_cur = std::min(most, now.rlim_max);
  setrlimit(what, &now);
}

void close_from(int first) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, static_cast<unsigned>(first), ~0U, 0U) == 0) return;
#endif
  rlimit files{};
  int most = kMostFdsByHand;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < kMostFdsByHand) most = static_cast<int>(files.rlim_max);
  for (int fd = first; fd < most; ++fd) close(fd);
}

// Ends with the error that kept it from becoming the program, written to status_fd.
[[noreturn]] void become(char* const* argv, char* const* environment, int in_fd, int out_fd, int status_fd,
                         pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // when Slurm kills us, this goes too
  if (getppid() != parent) _exit(EXIT_FAILURE);
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) sigaction(number, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(in_fd, 0);
  dup2(out_fd, 1);
  dup2(out_fd, 2);
  if (status_fd != kStatusFd) dup3(status_fd, kStatusFd, O_CLOEXEC);
  close_from(kFirstFreeFd);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_NOFILE, kOpenFiles);
  limit(RLIMIT_FSIZE, RLIM_INFINITY);
  limit(RLIMIT_CPU, RLIM_INFINITY);
  umask(S_IWGRP | S_IWOTH);
  if (chdir("/") == 0) execve(argv[0], argv, environment);
  const int error = errno;
  if (write(kStatusFd, &error, sizeof error) != sizeof error) _exit(EXIT_FAILURE);
  _exit(EXIT_FAILURE);
}

// ---- in the parent

// Takes what is there, false at the end.
bool take_output(int fd, std::string& output, std::size_t most_bytes) {
  char buffer[4096];
  const ssize_t got = read(fd, buffer, sizeof buffer);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  output.append(buffer, std::min(static_cast<std::size_t>(got), most_bytes - std::min(most_bytes, output.size())));
  return got > 0;
}

enum class Child { running, ended, gone };

// Whether it has ended; it stays a zombie, so that its number, which is its group's too, cannot be another's yet.
Child look(pid_t child) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    return errno == EINTR ? Child::running : Child::gone;
  }
  return info.si_pid == child ? Child::ended : Child::running;
}

// Follows the child until it has ended or the time is over.
Child follow(pid_t child, int fd, const Run& run, std::string& output) {
  const double end_s = now_s() + run.deadline_s;
  for (;;) {
    const Child state = look(child);
    if (state != Child::running) {
      // Reads the child's last output. Bounded: descendants may still print.
      for (int i = 0; i < 16 && fd >= 0 && take_output(fd, output, run.keep_output_bytes); ++i) {
        pollfd more{fd, POLLIN, 0};
        if (poll(&more, 1, 0) <= 0) break;
      }
      return state;
    }
    const double left_s = end_s - now_s();
    if (!(left_s > 0)) return Child::running;
    pollfd ready{fd, POLLIN, 0};  // a negative fd is only a pause
    const int wait_ms =
        std::min(fd < 0 ? kLookAgainMs : kLookEveryMs, static_cast<int>(std::ceil(std::min(left_s, 1.0) * 1000)));
    if (poll(&ready, 1, wait_ms) > 0 && !take_output(fd, output, run.keep_output_bytes)) fd = -1;
  }
}

// Waits a few moments for the killed child to exit. False: it does not (a disk or a network file system blocks it).
bool went(pid_t child) {
  const double end_s = now_s() + kKillGraceS;
  do {
    if (look(child) != Child::running) return true;
    poll(nullptr, 0, kLookEveryMs);
  } while (now_s() < end_s);
  return false;
}

Outcome failed(int error) { return {Ending::not_started, error, {}}; }

}  // namespace

std::string Outcome::describe() const {
  switch (ending) {
    case Ending::exited: return "ended with exit status " + std::to_string(code);
    case Ending::signalled: return "was ended by signal " + std::to_string(code) + " (" + strsignal(code) + ")";
    case Ending::late: return "did not end in time";
    case Ending::not_started: return std::string("could not be started: ") + strerror(code);
    case Ending::lost: return "ended, but how is not known";
  }
  return {};
}

Outcome supervise(const Run& run) {
  const std::vector<char*> argv = pointers(run.argv), environment = pointers(run.environment);
  Pipe output, status;
  const Fd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing || !output.open() || !status.open()) return failed(errno);
  fcntl(output.read.get(), F_SETFL, O_NONBLOCK);
  fcntl(status.read.get(), F_SETFL, O_NONBLOCK);

  const DefaultSigchld sigchld;
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child < 0) return failed(errno);
  if (child == 0) {
    become(argv.data(), environment.data(), nothing.get(), output.write.get(), status.write.get(), self);
  }
  setpgid(child, child);  // here too: whoever of us comes first
  output.write.reset();
  status.write.reset();

  Outcome outcome;
  const Child state = follow(child, output.read.get(), run, outcome.output);
  if (state != Child::gone) kill(-child, SIGKILL);
  if (state == Child::running) {
    outcome.ending = Ending::late;
    if (went(child)) waitpid(child, nullptr, WNOHANG);
    return outcome;
  }
  int how = 0;
  if (state == Child::gone || waitpid(child, &how, WNOHANG) != child) {
    outcome.ending = Ending::lost;
    return outcome;
  }
  int error = 0;
  if (read(status.read.get(), &error, sizeof error) == sizeof error) return failed(error);
  outcome.ending = WIFSIGNALED(how) ? Ending::signalled : Ending::exited;
  outcome.code = WIFSIGNALED(how) ? WTERMSIG(how) : WEXITSTATUS(how);
  return outcome;
}

}  // namespace ms::spank
