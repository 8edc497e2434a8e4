#include "driver/driver.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/print.h"
#include "base/safe_file.h"
#include "base/text.h"
#include "driver/agent.h"
#include "driver/status.h"
#include "net/measure/interface.h"
#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

constexpr double kTick_s = 0.1;
constexpr double kLookNode_s = 2e-5, kShowNode_s = 5e-4;  // what a look at all nodes, and a status of them, are worth
constexpr double kGather_s = 15, kGatherNode_s = 5e-3;    // for agents, before the first attempt
constexpr double kChecking_s = 900;                       // for the checks before it
constexpr std::size_t kMostLines = 64;

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

std::vector<std::string> agent_command(const DriverOptions& options, int port, const std::string& heartbeat) {
  std::vector<std::string> addresses;
  for (const net::Interface& interface : net::interfaces()) {
    if (interface.address.storage.ss_family == AF_INET) addresses.push_back(interface.address.with_port(port).str());
  }
  std::vector<std::string> command{options.program,  "agent",
                                   "--job",          std::to_string(options.job),
                                   "--heartbeat",    heartbeat,
                                   "--connect",      fmt::format("{}", fmt::join(addresses, ",")),
                                   "--evidence",     DriverFiles(options.run_dir).dir,
                                   "--every",        fmt::format("{}s", options.limits.every_s),
                                   "--diag",         options.diag,
                                   "--health-every", fmt::format("{}s", options.health_s)};
  if (!options.munge_socket.empty()) command.insert(command.end(), {"--munge", options.munge_socket});
  return command;
}

}  // namespace

std::string Driver::job() const { return fmt::format("{}.{}", options_.shown_job, options_.restarts); }
double Driver::wall_s(double at_s) const { return clock_.wall_s() - (clock_.now_s() - at_s); }

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
               .agent = agent_command(options_, hub_.port(), heartbeat_),
               .output_file = files_.dir + "/agents.log",
               .status_dir = files_.dir},
              hub_, clock, earlier_ && earlier_->port == hub_.port()),
      pool_(options_.nodes, options_.kept_for_last),
      suspects_(options_.diag, files_.dir),
      network_(options_.netcheck, files_.dir),
      flight_(files_.dir),
      events_(options_.run_dir, options_.diag, options_.notify),
      phase_s_(clock.now_s()),
      given_back_(earlier_ ? earlier_->given_back : std::set<std::string>()),
      kept_(options_.nodes.size()),
      deadlines_(options_.limits.hang_s) {
  if (access(files_.ledger().c_str(), F_OK) == 0) ledger_ = read_ledger(read_file(files_.ledger()), files_.ledger());
  if (ledger_.began_s == 0) ledger_.began_s = clock_.wall_s();
  ledger_.command = options_.launch.command;
  for (const auto& [node, why] : ledger_.excluded) pool_.exclude(node, why);
  for (const std::string& node : given_back_) pool_.exclude(node, "asked back");
  first_attempt_ = static_cast<int>(ledger_.attempts.size());
  if (earlier_) adopt(*earlier_);
  end_orphan();
  open_metrics_port();
  save();
}

// Goes on with the attempt of a driver that was killed.
void Driver::adopt(DriverState state) {
  if (!state.command || ledger_.attempts.empty() || entry().ended_s != 0 || entry().number != state.attempt) return;
  log::warn("driver", "a driver before this one was killed: resuming its attempt {}", state.attempt);
  first_attempt_ = std::max(0, first_attempt_ - 1);
  command_ = LongCommand::adopt(*state.command);
  nodes_ = state.nodes;
  pool_.work(nodes_);
  if (is_ms_train(options_.launch.command)) sizes_ = ask_run_sizes(options_.launch.command);
  watcher_.emplace(state.attempt, nodes_, limits(), deadlines_, clock_.now_s());
  output_.emplace(files_.output(state.attempt), state.output_offset);
  phase_ = Phase::running;
  const bool leaves = std::ranges::any_of(nodes_, [&](const std::string& node) { return given_back_.contains(node); });
  for (const std::string& node : given_back_) pool_.exclude(node, "asked back");
  if (leaves) save_and_go_on();
}

// An attempt that has no end and is not adopted: its driver was killed before it had noted the command, or was that of
// an earlier start of the job.
void Driver::end_orphan() {
  if (command_ || ledger_.attempts.empty() || entry().ended_s != 0) return;
  entry().ended_s = std::max(entry().began_s, entry().first_step_s);
  entry().cause = "driver_killed";
  entry().why = "the driver was killed, and what became of this attempt is not known";
  orphan_ = entry().number;
}

// A loop that names no sections may do anything between two heartbeats, such as a save that comes once an hour. Each
// alarm doubles the time that it gets.
WatchLimits Driver::limits() const {
  WatchLimits limits = options_.limits;
  for (const AttemptEntry& attempt : ledger_.attempts) {
    if (attempt.cause == "hang") limits.unnamed_s = std::min(limits.hang_s, 2 * limits.unnamed_s);
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
    if (command_ && phase_ != Phase::settling && command_->fd() >= 0) others.push_back(command_->fd());
    const std::vector<Hub::Event> events = hub_.wait(unseen ? rest_s : kTick_s, others);
    const double now_s = clock_.now_s();
    // A driver that was not scheduled has heard nobody, which says nothing of them.
    if (watcher_ && now_s - last_s > 4 * kTick_s) watcher_->was_away(now_s - last_s - kTick_s);
    last_s = now_s;
    read_signals();
    for (const Hub::Event& event : events) handle(event);
    unseen = unseen || !events.empty();
    if (unseen && now_s - looked_s_ < kLookNode_s * nodes && !result_) continue;
    unseen = false;
    looked_s_ = now_s;
    std::set<std::string> without = given_back_;
    for (const NodeRole role : {NodeRole::lost, NodeRole::unusable}) {
      for (const std::string& node : pool_.with(role)) without.insert(node);
    }
    agents_.tick(without);
    read_output(false);
    check_suspects(now_s);
    if (metrics_port_) metrics_port_->serve(metrics_);
    watch(now_s);
    for (Phase before = phase_;; before = phase_) {  // what follows at once need not wait for the next look
      step(now_s);
      if (phase_ == before || result_) break;
    }
    events_.send(now_s);
    if (now_s - shown_s_ >= std::max(1.0, kShowNode_s * nodes) || result_) show(now_s);
  }
  suspects_.stop();
  network_.stop();
  agents_.stop();
  events_.finish(clock_);
  requeue();
  return *result_;
}

void Driver::handle(const Hub::Event& event) {
  const double now_s = clock_.now_s();
  if (event.role == "client") return answer_client(event);
  const std::optional<AgentSays> says = agents_.take(event);
  if (event.kind == Hub::Kind::gone) awaited_.erase(event.node);
  if (!says) return;
  pool_.found(event.node);
  if (says->report && watcher_) watcher_->report(event.node, *says->report, now_s);
  if (says->report) {
    heard_s_[event.node] = now_s;
    losses_.hear(event.node, *says->report);
  }
  if (says->report && !says->report->finding.empty()) take_finding(event.node, says->report->finding);
  if (!says->answer) return;
  if (watcher_) watcher_->heard(event.node, now_s);
  awaited_.erase(event.node);
  for (const TaskEvidence& task : says->answer->tasks) {
    tasks_.push_back({.node = event.node, .task = task, .step = watcher_ ? watcher_->steps_of(task.rank) : -1});
  }
}

void Driver::answer_client(const Hub::Event& event) {
  if (event.kind != Hub::Kind::line) return;
  const std::optional<Json> json = Json::try_parse(event.text, {.max_depth = 4});
  const auto word = [&](const char* key) {
    const Json* value = json ? json->find(key) : nullptr;
    return value != nullptr && value->is_string() ? value->text() : std::string();
  };
  const std::string node = word("node");
  std::string said = "unknown request";
  if (word("ask") == "evict") {
    if (!pool_.nodes().contains(node)) {
      said = fmt::format("{} is not a node of this job", plain_text(node, 80));
    } else if (pool_.nodes().at(node).role == NodeRole::excluded) {
      said = fmt::format("{} is out already", node);
    } else {
      const bool works = pool_.nodes().at(node).role == NodeRole::works && phase_ == Phase::running;
      leave_out(node, "evicted by a person");
      said = works ? fmt::format("{} is out, the run continues without it", node) : fmt::format("{} is out", node);
      if (works) {
        alarm({.kind = AlarmKind::evicted,
               .nodes = {node},
               .ranks = {},
               .fault_s = clock_.now_s(),
               .why = fmt::format("{} was evicted by a person", node)},
              clock_.now_s());
      }
    }
  } else if (word("ask") == "give-back") {
    const std::optional<std::vector<std::string>> nodes = slurm::expand_hostlist(word("nodes"));
    said = nodes ? give_back(*nodes) : fmt::format("'{}' is no list of nodes", plain_text(word("nodes"), 80));
  } else if (word("ask") == "resize") {
    const Json* number = json->find("number");
    if (number != nullptr && number->is_number_unsigned()) said = resize(number->get<std::size_t>());
  } else if (word("ask") == "stop") {
    asked_to_stop_ = true;
    if (command_) command_->signal(SIGUSR2);
    said = command_ ? "the run was told to save and stop" : "no attempt runs: the driver stops";
    if (!command_) stop_with(static_cast<int>(ExitCode::stopped), "stopped by a person");
  }
  hub_.send(event.id, Json{{"answer", said}}.dump());
}

void Driver::read_signals() {
  signalfd_siginfo info{};
  while (options_.signals >= 0 && read(options_.signals, &info, sizeof info) == sizeof info) {
    const int number = static_cast<int>(info.ssi_signo);
    if (number == SIGUSR1) {
      read_request();
      continue;
    }
    log::warn("driver", "{} was received: stopping the run", strsignal(number));
    asked_to_stop_ = true;
    by_time_limit_ = number == SIGUSR2;  // as sbatch --signal is asked to send it
    if (command_) {
      command_->signal(number);
    } else {
      stop_with(128 + number, "stopped before an attempt ran");
    }
  }
}

// A command may write faster than it can be read here: some at a time, and at the end all that there is.
void Driver::read_output(bool last) {
  if (!output_) return;
  constexpr int kAtATime = 16;
  for (int i = 0; i < kAtATime || last; ++i) {
    const std::vector<std::string> lines = output_->lines(last);
    if (lines.empty()) break;
    take_output(lines);
    flush_log();
  }
}

// The job's log may lie on a disk that is full for a while, which must not end a run that does well.
void Driver::flush_log() {
  const bool full = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  std::clearerr(stdout);
  if (log_was_full_ && !full) {
    log::warn("driver", "lines are missing above, the disk was full: see {}", files_.output(entry().number));
  }
  log_was_full_ = full;
}

void Driver::take_output(const std::vector<std::string>& lines) {
  if (watcher_) watcher_->output(clock_.now_s());
  for (const std::string& text : lines) {
    std::string_view line = text;
    const int rank = take_label(line);
    write_bytes(fmt::format("{}\n", line));
    if (!first_exit_) first_exit_ = task_exit(line);
    const KnownLine* known = known_line(line);
    if (known == nullptr || lines_.size() >= kMostLines) continue;
    std::string node;
    if (rank >= 0) {
      const std::size_t index = static_cast<std::size_t>(rank / options_.launch.tasks_per_node);
      if (index < nodes_.size()) node = nodes_[index];
    }
    lines_.push_back({.known = known, .node = node, .text = plain_text(line, 300)});
  }
}

// Asks the kernels of silent nodes, and notes what the ranks have done.
void Driver::watch(double now_s) {
  if (!watcher_) return;
  // Each is asked once in the beginning: of who never answers, silence alone says less.
  for (const std::string& node : agents_.ask(watcher_->unasked_or_silent(options_.limits.ask_s(), now_s))) {
    watcher_->answered(node, now_s);
  }
  note_progress(now_s);
}

void Driver::note_progress(double) {
  if (ledger_.attempts.empty() || entry().ended_s != 0 || !watcher_ || watcher_->steps() < 0) return;
  AttemptEntry& now = entry();
  const std::int64_t steps = watcher_->steps();
  if (now.from_step < 0) now.from_step = now.to_step = steps;
  if (steps <= now.to_step) return;
  now.to_step = steps;
  if (now.first_step_s != 0) return;
  now.first_step_s = wall_s(watcher_->last_progress_s());
  if (fault_s_) {
    AttemptEntry& before = ledger_.attempts[faulty_];
    before.recover_s = watcher_->last_progress_s() - *fault_s_;
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
        begin_checks(now_s);
      }
      break;
    case Phase::checking:
      if (!suspects_.busy() || now_s - phase_s_ > kChecking_s) begin_attempt();
      break;
    case Phase::waiting:
      if (now_s >= wait_until_s_ && !(waits_for_network_ && network_.busy())) begin_attempt();
      break;
    case Phase::running:
      if (command_->ended()) {
        settle(now_s);
        break;
      }
      if (std::optional<Alarm> found = watcher_->check(now_s); found && found->kind != AlarmKind::hang) {
        alarm(*std::move(found), now_s);
      } else if (std::optional<Alarm> loss = packet_loss(now_s)) {
        alarm(*std::move(loss), now_s);
      } else if (found) {
        alarm(*std::move(found), now_s);
      } else {
        look_early(now_s);
      }
      break;
    case Phase::looking:
      if (awaited_.empty() || now_s - phase_s_ > watch::kLooking_s) end_command(now_s);
      break;
    case Phase::ending:
      if (awaited_.empty() || now_s - phase_s_ > watch::kKill_s) command_->signal(SIGKILL);
      if (command_->ended()) settle(now_s);
      break;
    case Phase::settling: {
      // Who is lost, maybe beside whom the alarm names, shows in who is not heard of; and a verdict may come from
      // another node.
      const bool well = !alarm_ && command_->status() == 0;
      const bool heard = well || (alarm_ && alarm_->kind == AlarmKind::node_lost) ||
                         watcher_->heard_all_since(alarm_ ? alarm_s_ : ended_s_, now_s);
      const bool told =
          !is_ms_train(options_.launch.command) || alarm_ || read_verdict() || now_s - phase_s_ > watch::kVerdict_s;
      if (heard && told && !flight_.busy(now_s)) finish_attempt(now_s);
      break;
    }
  }
}

}  // namespace ms::driver
