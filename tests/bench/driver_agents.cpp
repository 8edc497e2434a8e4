// The driver of ms-driver, and many agents played by one process that talks to it over TCP as real ones do. Prints a
// row: seconds until all had joined, the driver's processors and memory while they report, and the seconds until it
// told the agents that one is missing. driver_agents.sh runs it in a network namespace of its own. usage: driver_agents
// AGENTS RANKS DIR SOCKET-OF-MUNGED
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <span>
#include <thread>

#include "base/file.h"
#include "base/handle.h"
#include "base/json.h"
#include "base/print.h"
#include "base/subprocess.h"
#include "driver/driver.h"
#include "driver/state.h"
#include "driver/tasks.h"
#include "link/secret.h"

namespace {

using namespace ms;  // NOLINT: a main
using namespace ms::driver;

constexpr double kMeasure_s = 15, kStep_s = 5, kPatience_s = 300;
constexpr int kJob = 1;

struct Played {
  std::size_t number = 0;
  link::Channel channel;
  std::string node, nonce;
  bool joined = false;
  double next_s = 0;
};

class Players {
 public:
  Players(std::size_t count, int ranks, int port, const Credentials& credentials)
      : credentials_(credentials),
        ranks_(ranks),
        every_s_(report_every_s(count)),
        driver_(*link::parse_address(fmt::format("127.0.0.1:{}", port))),
        epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    for (std::size_t i = 0; i < count; ++i) {
      Played& agent = agents_.emplace_back();
      agent.number = i;
      agent.node = fmt::format("n{:05}", i);
      connect(agent);
      if (i % 16 == 0) play(0);
    }
  }

  // Addresses of the loopback network: the one of a missing agent can be made unreachable.
  static std::string address(std::size_t agent) {
    return fmt::format("127.{}.{}.{}", 1 + agent / 62500, agent / 250 % 250, 1 + agent % 250);
  }

  std::size_t joined() const { return joined_; }
  bool killed() const { return killed_; }
  void lose(std::size_t agent) { lost_ = agent, stopped_s_ = clock_.now_s(); }

  // Takes in what has come, waiting for at most `seconds`, and sends the reports that are due once all have joined.
  void play(double seconds) {
    std::array<epoll_event, 512> ready;
    const int count = epoll_wait(epoll_.get(), ready.data(), ready.size(), static_cast<int>(seconds * 1e3));
    for (int i = 0; i < count; ++i) {
      Played& agent = agents_[ready[static_cast<std::size_t>(i)].data.u64];
      try {
        hear(agent);
      } catch (const Error&) {  // the driver of a busy machine has no patience: agents come again
        if (agent.joined && agent.number != lost_) throw;
        agent.joined ? agent.channel.close_now() : connect(agent);
      }
    }
    // Real nodes have processors of their own: here, reports would keep those from joining who have not yet.
    if (joined_ < agents_.size()) return;
    const double now_s = clock_.now_s();
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      if (i == lost_ || now_s < agents_[i].next_s) continue;
      agents_[i].next_s += every_s_;
      agents_[i].channel.send_line(report(i, now_s), link::in_seconds(10));
    }
  }

 private:
  void connect(Played& agent) {
    const link::Address from = *link::parse_address(address(agent.number) + ":0");
    agent.nonce.clear();
    agent.channel = link::Channel::connect(driver_, agent.node, link::in_seconds(60), {.source_port = 0, .from = from});
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = agent.number;
    epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, agent.channel.fd(), &event);
  }
  void hear(Played& agent) {
    while (const std::optional<std::string> line = agent.channel.poll_line()) {
      if (agent.joined) {
        killed_ = killed_ || read_order(*line).what == "kill";
      } else if (agent.nonce.empty()) {
        agent.nonce = link::new_secret();
        Greeting greeting{.role = agent_role(kJob), .node = agent.node, .nonce = agent.nonce, .credential = ""};
        const auto nonce = Json::parse(*line).get<std::string>("nonce");
        greeting.credential = credentials_.seal(joiner_text(greeting, nonce, driver_));
        agent.channel.send_line(to_json(greeting), link::in_seconds(10));
      } else {
        std::string why;
        const std::optional<std::string> sealed =
            credentials_.open(Json::parse(*line).get<std::string>("credential"), why);
        const std::string expected = driver_text(agent.nonce, driver_);
        if (!sealed || !sealed->starts_with(expected))
          throw Error("bench.driver", Blame::peer, "no driver of ours: " + why);
        agent.channel.protect(sealed->substr(expected.size()), link::Channel::End::connected);
        agent.joined = true;
        agent.next_s = clock_.now_s();
        ++joined_;
      }
    }
  }

  std::string report(std::size_t agent, double now_s) const {
    const double trained_s = (stopped_s_ > 0 ? stopped_s_ : now_s);
    const auto step = static_cast<std::int64_t>(trained_s / kStep_s);
    Report report{.number = 1, .attempt = 1, .ranks = {}, .took = {{"step", kStep_s}}};
    for (int i = 0; i < ranks_; ++i) {
      report.ranks.push_back({.rank = static_cast<int>(agent) * ranks_ + i,
                              .pid = 1000 + i,
                              .alive = true,
                              .state = 'S',
                              .step = step,
                              .section = "step",
                              .section_s = now_s - static_cast<double>(step) * kStep_s,
                              .cpu = 1.02,
                              .numbers = {{"loss", 2.4375}, {"grad_norm", 0.8125}}});
    }
    return to_json(report);
  }

  SystemClock clock_;
  const Credentials& credentials_;
  int ranks_;
  double every_s_;
  link::Address driver_;
  UniqueFd epoll_;
  std::vector<Played> agents_;
  std::size_t joined_ = 0, lost_ = ~std::size_t{0};
  double stopped_s_ = 0;
  bool killed_ = false;
};

int drive(std::size_t count, const std::string& dir, const std::string& socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  DriverOptions options;
  for (std::size_t i = 0; i < count; ++i) options.nodes.push_back(fmt::format("n{:05}", i));
  options.job = kJob;
  options.run_dir = dir;
  options.launch.command = {"sleep", "1000000"};
  options.spares = 1;
  options.limits.every_s = report_every_s(count);
  options.program = "ms-driver";
  options.munge_socket = socket;
  SystemClock clock;
  const std::unique_ptr<Credentials> credentials = munge_credentials(socket);
  return Driver(options, *credentials, clock).run();
}

double memory_mib(int pid) {
  const std::string text = read_file(fmt::format("/proc/{}/status", pid));
  return std::strtod(text.c_str() + text.find("VmRSS:") + 6, nullptr) / 1024;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::size_t count = std::strtoul(argv[1], nullptr, 10);
  const int ranks = std::atoi(argv[2]);
  const std::string dir = argv[3], socket = argv[4];
  rlimit files{.rlim_cur = 4 * count + 1000, .rlim_max = 4 * count + 1000};
  setrlimit(RLIMIT_NOFILE, &files);
  const pid_t driver = fork();
  if (driver == 0) return drive(count, dir, socket);
  SystemClock clock;
  const auto wait_for = [&](auto&& is_so, auto&& meanwhile) {
    for (const double until_s = clock.now_s() + kPatience_s; !is_so();) {
      if (clock.now_s() > until_s || waitpid(driver, nullptr, WNOHANG) != 0) return false;
      meanwhile();
    }
    return true;
  };
  const DriverFiles paths(dir);
  const auto rest = [&] { clock.sleep_s(0.01); };
  if (!wait_for([&] { return access(paths.state().c_str(), R_OK) == 0; }, rest)) return 1;
  const double start_s = clock.now_s();
  const std::unique_ptr<Credentials> credentials = munge_credentials(socket);
  Players players(count, ranks, read_state(read_file(paths.state()))->port, *credentials);
  const auto play = [&] { players.play(0.002); };
  if (!wait_for([&] { return players.joined() == count; }, play)) return 1;
  const double joined_s = clock.now_s() - start_s;
  const auto until = [&](double end_s) { wait_for([&] { return clock.now_s() >= end_s; }, play); };
  until(clock.now_s() + 5);
  const std::uint64_t before = process_stat(Sysroot(), driver).ticks;
  const double measured_s = clock.now_s();
  until(measured_s + kMeasure_s);
  const double processors = static_cast<double>(process_stat(Sysroot(), driver).ticks - before) /
                            static_cast<double>(sysconf(_SC_CLK_TCK)) / (clock.now_s() - measured_s);
  const double memory = memory_mib(driver);
  const std::size_t missing = count / 2;
  run_subprocess({"ip", "route", "add", "table", "local", "blackhole", Players::address(missing) + "/32"});
  players.lose(missing);
  const double lost_s = clock.now_s();
  const bool noticed = wait_for([&] { return players.killed(); }, play);
  print_out("{:6} {:6} {:8.2f} {:10.1f} {:11.2f} {:11.0f} {:>9}\n", count, ranks, report_every_s(count), joined_s,
            processors, memory, noticed ? fmt::format("{:.1f}", clock.now_s() - lost_s) : "-");
  kill(driver, SIGKILL);
  waitpid(driver, nullptr, 0);
  return noticed ? 0 : 1;
}
