#include "driver/guard.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace ms::driver {
namespace {

constexpr int kPassedOn[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

sigset_t passed_on() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kPassedOn) sigaddset(&set, signal);
  return set;
}

int signal_fd(const sigset_t& set) {
  const int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) throw Error("driver.start", Blame::node, fmt::format("no signalfd: {}", errno_text(errno)));
  return fd;
}

}  // namespace

int guarded(const std::function<int(int)>& work) {
  sigset_t wanted = passed_on();
  sigset_t with_child = wanted;
  sigaddset(&with_child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &with_child, nullptr);
  for (int deaths = 0;; ++deaths) {
    std::fflush(nullptr);
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) throw Error("driver.start", Blame::node, fmt::format("no process: {}", errno_text(errno)));
    if (child == 0) {
      // The driver goes with its guard: a batch script that is over must leave nothing behind.
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) return 1;
      return work(signal_fd(wanted));
    }
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      const int signal = sigwaitinfo(&with_child, nullptr);
      if (signal > 0 && signal != SIGCHLD) kill(child, signal);
    }
    if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
    log::warn("driver", "the driver was killed ({}), starting it again", strsignal(WTERMSIG(status)));
    if (deaths == kMostDeaths) return 128 + WTERMSIG(status);
    sleep(deaths == 0 ? 0 : 1);
  }
}

}  // namespace ms::driver
