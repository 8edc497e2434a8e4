#include "driver/agent.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <future>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "driver/beats.h"
#include "driver/clock_jumps.h"
#include "driver/findings.h"
#include "driver/hub.h"
#include "driver/look.h"
#include "driver/ras.h"
#include "driver/tasks.h"
#include "link/secret.h"
#include "net/measure/interface.h"

namespace ms::driver {
namespace {

constexpr double kConnect_s = 3, kRetry_s = 0.2;
constexpr std::chrono::seconds kProof_s{60};  // for a driver to whom all agents come at once
constexpr double kAccepted_s = 1;             // a driver that drops an agent sooner is that of another job

std::optional<link::Channel> find_driver(const AgentOptions& options, const Credentials& credentials) {
  for (const std::string& text : options.drivers) {
    const std::optional<link::Address> address = link::parse_address(text);
    if (!address) throw user_error("driver.agent", fmt::format("'{}' is no address", text));
    try {
      return join(*address, agent_role(options.job), options.node, credentials, link::in_seconds(kConnect_s), kProof_s);
    } catch (const Error& error) {
      log::debug("driver", "{}", error.message());
      if (error.kind() == "driver.unauthenticated") log::warn("driver", "{}", error.message());
    }
  }
  return std::nullopt;
}

// In a thread of its own: storage that hangs, maybe with the run, must not keep the agent from its next order.
void write_evidence(const AgentOptions& options, int attempt, std::string stacks, std::vector<std::string> ras) {
  std::thread([dir = options.evidence, node = options.node, diag = options.diag, attempt, stacks = std::move(stacks),
               ras = std::move(ras)] {
    try {
      write_look(dir, attempt, node, stacks, ras, diag);
    } catch (const Error& error) { log::warn("driver", "{}", error.message()); }
  }).detach();
}

// The node as its agent observes it.
struct Observed {
  Beats beats;
  NodeHealth health;
  net::TcpLosses losses;
  ClockJumps clock = {};
};

// Adds what the kernel knows of packets that were lost.
void add_losses(net::TcpLosses& losses, double now_s, Report& report) {
  if (losses.due(now_s)) losses.look(net::tcp_sockets(), now_s);
  for (net::PeerLoss& peer : losses.peers()) {
    report.segments += peer.sent;
    if (peer.again > 0) report.losses.push_back(std::move(peer));
  }
  std::ranges::sort(report.losses, std::ranges::greater{}, &net::PeerLoss::again);
  if (report.losses.size() > kMostLosses) report.losses.resize(kMostLosses);
  if (report.number != 0) return;
  for (const net::Interface& interface : net::interfaces()) report.addresses.push_back(interface.address.host());
}

// While there is a driver. Returns false once it said that all is over; throws Error("net.peer") when it is gone.
bool serve(link::Channel& driver, Observed& observed, const AgentOptions& options) {
  SystemClock clock;
  double next_s = clock.now_s();
  std::int64_t number = 0;
  Beats& beats = observed.beats;
  while (true) {
    std::vector<pollfd> polls{{.fd = driver.fd(), .events = POLLIN, .revents = 0}};
    for (const int fd : beats.fds()) polls.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    poll(polls.data(), polls.size(), std::max(0, static_cast<int>(std::ceil((next_s - clock.now_s()) * 1e3))));
    const bool ended = beats.take(clock.now_s());
    if (ended || clock.now_s() >= next_s) {
      Report report = beats.report(clock.now_s());
      if (number == 0) report.unheard = beats.unheard();
      report.number = number++;
      report.finding = observed.health.finding();
      report.clock_jump_s = observed.clock.take(clock);
      add_losses(observed.losses, clock.now_s(), report);
      driver.send_line(to_json(report), link::in_seconds(kConnect_s));
      next_s = clock.now_s() + options.every_s;
    }
    while (const std::optional<std::string> line = driver.poll_line()) {
      const Order order = read_order(*line);
      if (order.what == "quit") return false;
      Answer answer{.to = order.what, .attempt = order.attempt};
      if (order.what == "kill") answer.count = kill_tasks(options.root, options.job, order.attempt);
      if (order.what == "look") {
        const bool asks_ras = order.ras && !options.evidence.empty();
        std::future<RasAnswers> ras;
        const std::vector<Task> tasks = tasks_of(options.root, options.job, order.attempt);
        if (asks_ras) ras = std::async(std::launch::async, ask_ras_twice, options.root, tasks);
        const std::vector<FlightFile> dumps = dump_flight_recorders(options.root, tasks);
        TaskLook look = look_at(options.root, tasks, kLook_s);
        await_dumps(dumps, kDumps_s);
        answer.tasks = std::move(look.ranks);
        if (!options.evidence.empty() && !look.all.empty()) {
          RasAnswers answers = asks_ras ? ras.get() : RasAnswers();
          if (!answers.problem.empty()) log::info("driver", "NCCL's RAS does not tell of the run: {}", answers.problem);
          write_evidence(options, order.attempt, std::move(look.all), std::move(answers.reports));
        }
      }
      driver.send_line(to_json(answer), link::in_seconds(kConnect_s));
    }
  }
}

}  // namespace

std::string new_heartbeat_path() {
  constexpr std::size_t kUnguessable = 24;  // hexadecimal digits
  return fmt::format("/tmp/ms-driver-{}-{}/beat", geteuid(), link::new_secret().substr(0, kUnguessable));
}

bool run_agent(const AgentOptions& options, const Credentials& credentials) {
  Observed observed{
      .beats = Beats(options.socket, options.root), .health = NodeHealth(options.diag, options.health_s), .losses = {}};
  double last_s = monotonic_s();
  while (monotonic_s() - last_s < options.patience_s) {
    if (std::optional<link::Channel> driver = find_driver(options, credentials)) {
      const double joined_s = monotonic_s();
      try {
        if (!serve(*driver, observed, options)) return true;
      } catch (const Error& error) { log::info("driver", "{}", error.message()); }
      if (const double now_s = monotonic_s(); now_s - joined_s >= kAccepted_s) last_s = now_s;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(kRetry_s));
    observed.beats.take(monotonic_s());
  }
  log::warn("driver", "no driver for {:.0f} s: this agent ends", options.patience_s);
  return false;
}

}  // namespace ms::driver
