// Implements follow() of commands.h.
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/print.h"
#include "link/http_server.h"
#include "tracepp/export/commands.h"
#include "tracepp/page/commands.h"
#include "tracepp/page/endpoint.h"
#include "tracepp/page/follow.h"

namespace ms::tracepp {
namespace {

constexpr double kTick_s = 0.5;
constexpr int kOwnPort = 8000;  // that we propose for the user's machine

// The signals that end a program, as something to wait for. Afterwards SIGINT is what it was, so that a second Ctrl-C
// ends the program at once. The others stay blocked: timeout and launchers send one to the process and again to its
// group, and the second would end as a failure what the first has ended well.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      struct sigaction action {};
      if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&set_, signal);
    }
    fd_ = UniqueFd(::signalfd(-1, &set_, SFD_NONBLOCK | SFD_CLOEXEC));
    if (!fd_ || ::pthread_sigmask(SIG_BLOCK, &set_, nullptr) != 0)
      throw Error("follow.signals", ms::Blame::node, fmt::format("cannot listen for signals: {}", errno_text(errno)));
  }
  ~EndSignals() {
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    ::pthread_sigmask(SIG_UNBLOCK, &interrupt, nullptr);
  }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  int fd() const { return fd_.get(); }
  bool came() const {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == sizeof info;
  }

 private:
  sigset_t set_{};
  UniqueFd fd_;
};

// Reads the run again in a thread, until it is destroyed.
class RefreshThread {
 public:
  explicit RefreshThread(FollowedRun& run)
      : thread_([this, &run](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          while (!stop.stop_requested()) {
            run.refresh();
            changed_.wait_for(lock, stop, std::chrono::duration<double>(kTick_s), [] { return false; });
          }
        }) {}

 private:
  std::mutex mutex_;  // guards nothing: waiting needs one
  std::condition_variable_any changed_;
  std::jthread thread_;
};

void print_where(const Endpoint& endpoint, const std::string& token) {
  std::array<char, HOST_NAME_MAX + 1> host{};
  ::gethostname(host.data(), host.size() - 1);
  const auto url = [&](int port) { return fmt::format("http://127.0.0.1:{}/?token={}", port, token); };
  if (endpoint.port() != 0) print_out("on this machine, open     {}\n", url(endpoint.port()));
  print_out("on your own machine, run  ssh -N -L {} {}\n", endpoint.forwarding(kOwnPort), host.data());
  print_out("and open there            {}\n", url(kOwnPort));
  print_out("Ctrl-C ends it\n");
  std::fflush(stdout);  // others wait for it
}

// Serves until a signal comes.
void serve(FollowedRun& run, const Endpoint& endpoint, const EndSignals& signals, Clock& clock) {
  const std::string token = new_token();
  Site site(
      token, [&] { return run.page(); }, [&] { return run.state(); });
  link::HttpServer server(endpoint.fd(), clock, {.request_s = 5, .answer_s = 60});
  print_where(endpoint, token);
  while (!signals.came()) {
    server.wait(signals.fd(), kTick_s);
    server.serve([&](const link::HttpRequest& request) { return site.answer(request); });
  }
}

}  // namespace

int follow(const Args& args) {
  for (const char* option : {"output", "json", "brief", "all"})
    if (args.has(option)) throw user_error("cli.value", fmt::format("--follow and --{}: it serves a page", option));
  if (args.has("listen") && args.has("socket")) throw user_error("cli.value", "--listen and --socket: one of them");
  SystemClock clock;
  std::optional<Endpoint> endpoint;
  if (args.has("listen")) endpoint.emplace(Endpoint::at_loopback(args.get("listen")));  // refused before all is read
  FollowedRun run(args.list("PATH"), chosen_events(args), clock, args.has("expected") ? args.get("expected") : "");
  run.begin([&](const RunTrace& trace) { count_chosen(args, trace, chosen_events(args)); });

  std::optional<EndSignals> signals(std::in_place);  // before there is a thread, or a socket to remove
  const RefreshThread reader(run);
  if (!endpoint) endpoint.emplace(Endpoint::at_socket(args.get("socket")));
  serve(run, *endpoint, *signals, clock);
  endpoint.reset();
  signals.reset();  // the thread may be reading still: a second Ctrl-C does not wait for it
  return 0;
}

}  // namespace ms::tracepp
