#include "watch/stop.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "base/error.h"
#include "base/log.h"
#include "base/system_error.h"

namespace ms::watch {
namespace {

constexpr std::int64_t kLookEvery_ms = 200;

const char* name_of(int signal) {
  switch (signal) {
    case SIGTERM: return "SIGTERM";
    case SIGINT: return "SIGINT";
    case SIGHUP: return "SIGHUP";
    default: return "SIGUSR2";
  }
}

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

StopRequest::StopRequest() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR2}) {
    if (!is_ignored(signal)) sigaddset(&set, signal);  // a shell's background job is not to end with Ctrl-C
  }
  signals_ = UniqueFd(signalfd(-1, &set, SFD_CLOEXEC));
  end_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  if (!signals_ || !end_ || pthread_sigmask(SIG_BLOCK, &set, nullptr) != 0) {
    const int err = errno;
    throw system_error("watch.signals", Blame::node, fmt::format("cannot listen for signals: {}", errno_text(err)),
                       err);
  }
  thread_ = std::thread([this] { listen(); });
}

StopRequest::~StopRequest() {
  const std::uint64_t one = 1;
  if (write(end_.get(), &one, sizeof one) == sizeof one) thread_.join();
}

void StopRequest::listen() {
  std::array<pollfd, 2> polled{{{signals_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}}};
  for (;;) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;  // EINTR
    if (polled[1].revents != 0) return;
    signalfd_siginfo info{};
    if (read(signals_.get(), &info, sizeof info) != sizeof info) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (armed_ && signal_.exchange(signal) == 0) {
      log::info("watch", "received {}: the run stops after the step, or the batch of an evaluation, that is under way",
                name_of(signal));
      continue;
    }
    // Launchers repeat these: Slurm sends SIGTERM again while the run saves. SIGKILL follows where it must end.
    if (armed_ && (signal == SIGUSR2 || signal == SIGTERM)) continue;
    // Applies the default action, or none if the signal is ignored by now (begin_ending).
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
    raise(signal);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
  }
}

std::optional<std::string> StopRequest::asked() const {
  const int signal = signal_.load(std::memory_order_relaxed);
  if (signal == 0) return std::nullopt;
  return name_of(signal);
}

StopFile::StopFile(const std::string& run_dir, bool goes_on) : path_(run_dir + "/stop") {
  if (goes_on) return;
  if (unlink(path_.c_str()) == 0) log::warn("watch", "{} was left by an earlier run and is removed", path_);
}

bool StopFile::asked() {
  if (asked_ || now_ms() < next_look_ms_) return asked_;
  next_look_ms_ = now_ms() + kLookEvery_ms;
  asked_ = access(path_.c_str(), F_OK) == 0;
  if (asked_)
    log::info("watch", "found {}: the run stops after the step, or the batch of an evaluation, that is under way",
              path_);
  return asked_;
}

void StopFile::remove() {
  if (unlink(path_.c_str()) != 0 && errno != ENOENT) {
    log::warn("watch", "cannot remove {}, so the next start will stop too: {}", path_, errno_text(errno));
  }
}

}  // namespace ms::watch
