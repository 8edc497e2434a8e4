#include "driver/driver.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/lock_file.h"
#include "base/log.h"
#include "base/print.h"
#include "base/safe_file.h"
#include "driver/agent.h"
#include "driver/status.h"
#include "net/measure/interface.h"

namespace ms::driver {
namespace {

constexpr double kTick_s = 0.1;
constexpr double kLedger_s = 60;                          // between two writes of the ledger, at most
constexpr double kLookNode_s = 2e-5, kShowNode_s = 5e-4;  // what a look at all nodes, and a status of them, are worth
constexpr double kSettle_s = 60, kSettleStopped_s = 5;    // to hear of all nodes after an attempt, at most
constexpr double kGather_s = 15, kGatherNode_s = 5e-3;    // for agents, before the first attempt
constexpr double kSlurm_s = 30;                           // for one answer of Slurm: it decides what becomes of the job
constexpr double kDrains_s = 10;                          // for one that can wait: the driver ends no sooner
constexpr double kChecking_s = 900;                       // for the checks before the first one

UniqueFd lock_directory(const std::string& run_dir) {
  make_directories(run_dir);
  const Refusal refusal{.kind = "driver.busy", .blame = Blame::storage};
  UniqueFd lock = try_lock_at(open_driver_directory(run_dir), "lock", refusal);
  if (!lock) {
    throw user_error("driver.busy", fmt::format("another driver is at work in {}", run_dir),
                     "give this run a directory of its own with --run-dir, or see: ms-driver status");
  }
  return lock;
}

std::optional<DriverState> earlier_state(const DriverFiles& files, const std::string& job) {
  if (access(files.state().c_str(), F_OK) != 0) return std::nullopt;
  std::optional<DriverState> state = read_state(read_file(files.state()));
  if (state && state->job != job) state.reset();
  return state;
}

Ledger stored_ledger(const DriverFiles& files) {
  if (access(files.ledger().c_str(), F_OK) != 0) return {};
  return read_ledger(read_file(files.ledger()), files.ledger());
}

std::vector<std::string> agent_command(const DriverOptions& options, int port) {
  std::vector<std::string> addresses;
  for (const net::Interface& interface : net::interfaces()) {
    if (interface.address.storage.ss_family == AF_INET) addresses.push_back(interface.address.with_port(port).str());
  }
  std::vector<std::string> command{options.program,  "agent",
                                   "--job",          std::to_string(options.job),
                                   "--connect",      fmt::format("{}", fmt::join(addresses, ",")),
                                   "--evidence",     DriverFiles(options.run_dir).dir,
                                   "--every",        fmt::format("{}s", options.limits.every_s),
                                   "--diag",         options.diag,
                                   "--health-every", fmt::format("{}s", options.health_s)};
  if (options.restarts < options.max_requeues) {
    command.insert(command.end(),
                   {"--requeue-without", options.nodes.front(), "--restarts", std::to_string(options.restarts)});
  }
  if (!options.munge_socket.empty()) command.insert(command.end(), {"--munge", options.munge_socket});
  return command;
}

}  // namespace

std::string Driver::job() const { return fmt::format("{}.{}", options_.shown_job, options_.restarts); }
double Driver::wall_s(double at_s) const { return clock_.wall_s() - (clock_.now_s() - at_s); }

void Driver::note_clock(double now_s) {
  if (const double jump_s = clock_jumps_.take(clock_); jump_s != 0) {
    ledger_.shift(jump_s);
    nodes_.clock_jumped(options_.nodes.front(), jump_s, now_s);
  }
  nodes_.note_clocks(now_s, clock_.wall_s());
}

Driver::Driver(DriverOptions options, const Credentials& credentials, Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      files_(options_.run_dir),
      lock_(lock_directory(options_.run_dir)),
      earlier_(earlier_state(files_, job())),
      heartbeat_(earlier_ && !earlier_->heartbeat.empty() ? earlier_->heartbeat : new_heartbeat_path()),
      hub_(earlier_ ? earlier_->port : 0, credentials, clock, Hub::kLeastUnproven + options_.nodes.size()),
      agents_({.job = options_.job,
               .nodes = options_.nodes,
               .agent = agent_command(options_, hub_.port()),
               .heartbeat = heartbeat_,
               .output_file = files_.dir + "/agents.log",
               .status_dir = files_.dir},
              hub_, clock, earlier_ && earlier_->port == hub_.port()),
      ledger_(stored_ledger(files_)),
      nodes_(options_, files_.dir, agents_, ledger_),
      sizes_(options_, earlier_ ? earlier_->given_back : std::set<std::string>()),
      slurm_({.conf = options_.slurm_conf, .deadline_s = kSlurm_s}),
      slurm_job_(options_, slurm_, clock),
      drains_({.conf = options_.slurm_conf, .deadline_s = kDrains_s}, options_.nodes),
      asked_slurm_s_(clock.now_s()),
      publisher_(options_, clock),
      phase_s_(clock.now_s()),
      tasks_in_blocks_(
          has_blocks_of_tasks(options_.launch, std::getenv("SLURM_DISTRIBUTION")) ? options_.launch.tasks_per_node : 0),
      deadlines_(options_.limits.hang_s) {
  if (ledger_.began_s == 0) ledger_.began_s = clock_.wall_s();
  ledger_.command = options_.launch.command;
  for (const std::string& node : sizes_.given_back()) nodes_.pool().exclude(node, kAskedBack);
  first_attempt_ = static_cast<int>(ledger_.attempts.size());
  if (earlier_) adopt(*earlier_);
  end_orphan();
  save();
}

// A loop that names no sections may do anything between two heartbeats, such as a save that comes once an hour. Each
// alarm doubles the time that it gets.
WatchLimits Driver::limits() const {
  WatchLimits limits = options_.limits;
  for (const AttemptEntry& attempt : ledger_.attempts) {
    if (attempt.cause == kHang) limits.unnamed_s = std::min(limits.hang_s, 2 * limits.unnamed_s);
  }
  return limits;
}

int Driver::run() {
  const auto nodes = static_cast<double>(options_.nodes.size());
  double last_s = clock_.now_s();
  bool unseen = false;  // something came since the last look at all nodes
  while (!result_) {
    // Reports of thousands of agents come all the time; to look at all nodes after each would take too long.
    const double rest_s = std::clamp(looked_s_ + kLookNode_s * nodes - last_s, 0.0, kTick_s);
    std::vector<int> others;
    if (options_.signals >= 0) others.push_back(options_.signals);
    if (attempt_->command && phase_ != Phase::settling && attempt_->command->fd() >= 0)
      others.push_back(attempt_->command->fd());
    const std::vector<Hub::Event> events = hub_.wait(unseen ? rest_s : kTick_s, others);
    const double now_s = clock_.now_s();
    // A driver that was not scheduled heard no agent, which is no sign that agents are silent.
    if (attempt_->watcher && now_s - last_s > 4 * kTick_s) attempt_->watcher->was_away(now_s - last_s - kTick_s);
    last_s = now_s;
    note_clock(now_s);
    read_signals();
    for (const Hub::Event& event : events) handle(event);
    unseen = unseen || !events.empty();
    if (unseen && now_s - looked_s_ < kLookNode_s * nodes && !result_) continue;
    unseen = false;
    looked_s_ = now_s;
    std::set<std::string> without = sizes_.given_back();
    for (const std::string& node : nodes_.gone()) without.insert(node);
    agents_.tick(without);
    read_output(false);
    nodes_.check(now_s, phase_ == Phase::running, attempt_->nodes.size());
    heed_drains(now_s);
    heed_pace(now_s);
    if (nodes_.take_changed()) save();
    watch(now_s);
    for (Phase before = phase_;; before = phase_) {  // what follows at once need not wait for the next look
      step(now_s);
      if (phase_ == before || result_) break;
    }
    publisher_.send(now_s);
    if (now_s - shown_s_ >= std::max(1.0, kShowNode_s * nodes) || result_) show(now_s);
  }
  nodes_.stop();
  agents_.stop();
  publisher_.finish();
  requeue();
  return *result_;
}

void Driver::handle(const Hub::Event& event) {
  const double now_s = clock_.now_s();
  if (event.role == "client") return answer_client(event);
  const std::optional<AgentSays> says = agents_.take(event);
  if (event.kind == Hub::Kind::gone) {
    attempt_->awaited.erase(event.node);
    if (attempt_->watcher) attempt_->watcher->closed(event.node);
  }
  if (!says) return;
  nodes_.pool().found(event.node);
  if (says->report && attempt_->watcher) attempt_->watcher->report(event.node, *says->report, now_s);
  if (says->report && says->report->attempt == (ledger_.attempts.empty() ? -1 : entry().number))
    pace_.hear(event.node, says->report->ranks);
  if (says->report) nodes_.hear(event.node, *says->report, now_s);
  if (says->report && !says->report->finding.empty()) {
    std::optional<Alarm> found =
        nodes_.take_finding(event.node, says->report->finding, phase_ == Phase::running, now_s);
    if (found) alarm(*std::move(found), now_s);
  }
  if (!says->answer) return;
  if (attempt_->watcher) attempt_->watcher->heard(event.node, now_s);
  attempt_->awaited.erase(event.node);
  attempt_->take_answer(event.node, *says->answer);
}

void Driver::read_signals() {
  signalfd_siginfo info{};
  while (options_.signals >= 0 && read(options_.signals, &info, sizeof info) == sizeof info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGUSR1) {
      look_at_partition();
      continue;
    }
    log::warn("driver", "{} was received: stopping the run", strsignal(number));
    asked_to_stop_ = true;
    by_time_limit_ = number == SIGUSR2;  // as sbatch --signal is asked to send it
    if (attempt_->command) {
      attempt_->command->signal(number);
    } else {
      stop_with(128 + number, "stopped before an attempt ran");
    }
  }
}

// A command may write faster than it can be read here: for some time at a time, and at the end all that is kept.
void Driver::read_output(bool last) {
  if (!attempt_->output) return;
  constexpr double kAtATime_s = 0.3;
  const double end_s = clock_.now_s() + kAtATime_s;
  while (last || clock_.now_s() < end_s) {
    const std::vector<std::string> lines = attempt_->output->lines(last);
    if (lines.empty()) break;
    attempt_->take_output(lines, tasks_in_blocks_, clock_.now_s());
    publisher_.flush_log(files_.output(entry().number));
  }
}

// Whether the run can continue without one of its nodes.
bool Driver::is_replaceable() const {
  return sizes_.is_elastic() || options_.least_nodes != 0 || !nodes_.pool().with(NodeRole::spare).empty();
}

// Asks the kernels of silent nodes, and notes what the ranks have done.
void Driver::watch(double now_s) {
  if (!attempt_->watcher) return;
  // Each is asked once in the beginning: of who never answers, silence alone says less.
  for (const std::string& node : agents_.ask(attempt_->watcher->unasked_or_silent(options_.limits.ask_s(), now_s))) {
    attempt_->watcher->answered(node, now_s);
  }
  note_progress();
}

void Driver::note_progress() {
  if (ledger_.attempts.empty() || entry().ended_s != 0 || !attempt_->watcher || attempt_->watcher->steps() < 0) return;
  AttemptEntry& now = entry();
  const std::int64_t steps = attempt_->watcher->steps();
  if (now.from_step < 0) now.from_step = now.to_step = steps;
  if (steps <= now.to_step) return;
  now.to_step = steps;
  if (now.first_step_s != 0) return;
  now.first_step_s = wall_s(attempt_->watcher->last_progress_s());
  if (fault_s_) {
    AttemptEntry& before = ledger_.attempts[faulty_];
    before.recover_s = attempt_->watcher->last_progress_s() - *fault_s_;
    log::info("driver", "attempt {} trains: {:.1f} s after the alarm", now.number, before.recover_s);
    comment(fmt::format("attempt {} trains", now.number));
    fault_s_.reset();
  }
  save();
}

void Driver::step(double now_s) {
  switch (phase_) {
    case Phase::gathering:
      if (agents_.connected() == options_.nodes.size() ||
          now_s - phase_s_ > kGather_s + kGatherNode_s * static_cast<double>(options_.nodes.size())) {
        phase_ = Phase::checking;
        phase_s_ = now_s;
        if (options_.preflight_level > 0) nodes_.check_spares();
      }
      break;
    case Phase::checking:
      if (!nodes_.checks() || now_s - phase_s_ > kChecking_s) begin_attempt();
      break;
    case Phase::waiting:
      if (now_s >= wait_until_s_ && !nodes_.waits_for_network()) begin_attempt();
      break;
    case Phase::running:
      if (attempt_->command->ended()) return settle(now_s);
      if (end_failed(now_s)) break;
      if (std::optional<Alarm> found = attempt_->watcher->check(now_s, is_replaceable());
          found && found->kind != AlarmKind::hang) {
        alarm(*std::move(found), now_s);
      } else if (std::optional<Alarm> loss = nodes_.packet_loss(attempt_->nodes, *attempt_->watcher, now_s)) {
        alarm(*std::move(loss), now_s);
      } else if (found) {
        alarm(*std::move(found), now_s);
      } else {
        look_early(now_s);
      }
      break;
    case Phase::looking:
      if (attempt_->awaited.empty() || now_s - phase_s_ > watch::kLooking_s) end_command(now_s);
      break;
    case Phase::ending:
      if (attempt_->awaited.empty() || now_s - phase_s_ > watch::kKill_s) attempt_->command->signal(SIGKILL);
      if (attempt_->command->ended()) settle(now_s);
      break;
    case Phase::settling: {
      // Who is lost, maybe beside whom the alarm names, shows in who is not heard of; and a verdict may come from
      // another node.
      const bool well = attempt_->ended_well();
      // Machines that answer, and agents that Slurm does not start again because the job has ended.
      const bool waited = now_s - phase_s_ > (asked_to_stop_ ? kSettleStopped_s : kSettle_s);
      const bool heard =
          well || waited || (attempt_->alarm && attempt_->alarm->kind == AlarmKind::node_lost) ||
          attempt_->watcher->heard_all_since(attempt_->alarm ? attempt_->alarm_s : attempt_->ended_s, now_s);
      const bool told = !is_ms_train(options_.launch.command) || attempt_->alarm || read_verdict() ||
                        now_s - phase_s_ > watch::kVerdict_s;
      if (heard && told && !hang_judge_.busy(now_s)) finish_attempt(now_s);
      break;
    }
  }
}

void Driver::comment(const std::string& text) { publisher_.comment(text, sizes_.comment(), is_lost_); }

void Driver::save() {
  shown_s_ = -1e9;  // what is shown follows at once
  saved_s_ = clock_.now_s();
  DriverState state{.job = job(),
                    .heartbeat = heartbeat_,
                    .addresses = {},
                    .port = hub_.port(),
                    .attempt = ledger_.attempts.empty() ? 0 : entry().number,
                    .nodes = attempt_->nodes,
                    .command = attempt_->command ? std::optional(attempt_->command->place()) : std::nullopt,
                    .output_offset = attempt_->output ? attempt_->output->offset() : 0,
                    .given_back = sizes_.given_back()};
  for (const net::Interface& interface : net::interfaces()) {
    state.addresses.push_back(interface.address.with_port(hub_.port()).str());
  }
  // A full disk must not end a healthy run: the next change tries again.
  try {
    write_file_atomic(files_.ledger(), to_json(ledger_, clock_.wall_s()));
    // Whoever knew the socket of heartbeats could lay something of theirs there before an agent starts.
    const Refusal refusal{.kind = "driver.run_dir", .blame = Blame::storage};
    write_at(open_driver_directory(options_.run_dir), "state.json", to_json(state), 0600, refusal);
    if (std::exchange(is_lost_, false)) log::info("driver", "the ledger is written again");
  } catch (const Error& error) {
    if (!std::exchange(is_lost_, true)) log::warn("driver", "{}: it is tried again", error.message());
  }
}

Status Driver::status() const {
  Status status{.phase = std::string(phase_ == Phase::running    ? "trains"
                                     : phase_ == Phase::waiting  ? "waits"
                                     : phase_ == Phase::checking ? "checks"
                                                                 : "recovers"),
                .job = job(),
                .job_id = options_.job,
                .pool = nodes_.pool(),
                .ledger = ledger_,
                .watcher = attempt_->watcher ? &*attempt_->watcher : nullptr,
                .slow = pace_.slow() ? &*pace_.slow() : nullptr};
  if (result_) status.phase = queues_again_ ? kQueuedAgain : "ended";
  return status;
}

void Driver::show(double now_s) {
  if (now_s - saved_s_ >= kLedger_s) save();  // the steps of an attempt under way, for who reads the report meanwhile
  shown_s_ = now_s;
  publisher_.log_rejected(hub_, now_s, result_.has_value());
  publisher_.show(status(), now_s);
}

}  // namespace ms::driver
