// The attempts of a driver: their begin, their end, and what follows.
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "driver/agent.h"
#include "driver/driver.h"
#include "driver/recovery.h"
#include "slurm/commands.h"
#include "slurm/hostlist.h"
#include "slurm/requeue.h"

namespace ms::driver {
namespace {

constexpr double kAwaitSpares_s = 0.2;

}  // namespace

// Resumes the attempt of a driver that was killed.
void Driver::adopt(DriverState state) {
  if (!state.command || ledger_.attempts.empty() || entry().ended_s != 0 || entry().number != state.attempt) return;
  log::warn("driver", "a driver before this one was killed: resuming its attempt {}", state.attempt);
  first_attempt_ = std::max(0, first_attempt_ - 1);
  attempt_->command = LongCommand::adopt(*state.command);
  attempt_->nodes = state.nodes;
  nodes_.pool().work(attempt_->nodes);
  sizes_.ask();
  attempt_->watcher.emplace(state.attempt, attempt_->nodes, limits(), deadlines_, clock_.now_s());
  attempt_->output.emplace(files_.output(state.attempt), state.output_offset);
  // That driver had read these lines, and may not have acted on them.
  constexpr std::int64_t kRead_bytes = 65536;
  Tail read(files_.output(state.attempt), std::max<std::int64_t>(0, state.output_offset - kRead_bytes));
  std::vector<std::string> lines = read.lines();
  if (state.output_offset > kRead_bytes && !lines.empty()) lines.erase(lines.begin());  // cut in two
  attempt_->take_lines(lines, tasks_in_blocks_, clock_.now_s());
  phase_ = Phase::running;
  const bool leaves =
      std::ranges::any_of(attempt_->nodes, [&](const std::string& node) { return sizes_.given_back().contains(node); });
  for (const std::string& node : sizes_.given_back()) nodes_.pool().exclude(node, kAskedBack);
  if (leaves) save_and_go_on();
}

// An attempt that has no end and is not adopted: its driver was killed before it had noted the command, or was that of
// an earlier start of the job.
void Driver::end_orphan() {
  if (attempt_->command || ledger_.attempts.empty() || entry().ended_s != 0) return;
  const bool has_status = access(files_.status().c_str(), R_OK) == 0;
  ledger_.close(has_status ? written_s(read_file(files_.status())).value_or(0) : 0);
  orphan_ = entry().number;
  publisher_.tell("run-interrupted", {}, entry().cause, entry().why);
}

void Driver::start_command() {
  const double rate = faults_per_s(ledger_, clock_.wall_s());
  attempt_->command =
      LongCommand::start(srun_command(launch_, attempt_->nodes),
                         environment_with({{"MS_ATTEMPT", std::to_string(entry().number)},
                                           {"MS_HEARTBEAT", heartbeat_},
                                           {"MS_MTBF", rate > 0 ? fmt::format("{:.0f}s", 1 / rate) : ""},
                                           {"SLURM_PROCID", ""},
                                           {"SLURM_HOSTFILE", ""}}),
                         files_.output(entry().number), files_.exit_status(entry().number));
}

void Driver::not_started(const std::string& why, double now_s) {
  log::warn("driver", "attempt {} does not begin: {}", entry().number, why);
  attempt_->watcher.reset();
  attempt_->output.reset();
  entry().ended_s = clock_.wall_s();
  entry().cause = kStorage;
  entry().code = static_cast<int>(ExitCode::storage);
  entry().why = why;
  Judgement judgement;
  judgement.cause = entry().cause;
  judgement.code = entry().code;
  judgement.why = why;
  comment(fmt::format("attempt {} does not begin: {}", entry().number, why));
  decide(judgement, now_s);
}

void Driver::begin_attempt() {
  const std::size_t working = options_.nodes.size() - options_.spares;
  if (nodes_.awaits_spares(clock_.now_s(), working) || nodes_.awaits_broken(working, clock_.now_s())) {
    phase_ = Phase::waiting;
    wait_until_s_ = clock_.now_s() + kAwaitSpares_s;
    return;
  }
  resizes_ = false;
  leaves_ = false;
  replace_drained();
  if (slow_node_.empty()) slow_node_ = replaceable_slow_node();  // this restart costs nothing more
  if (!slow_node_.empty()) nodes_.pool().suspect(std::exchange(slow_node_, {}), "it was slow");
  // Slurm without slurmdbd takes nodes out of a job once. What was saved is not lost if the job leaves by itself.
  if (!slurm_job_.let_go(sizes_.given_back()) && options_.most_nodes != 0 && !ledger_.attempts.empty() &&
      entry().cause == "stopped" && queue_after_save())
    return;
  Sizes::Start start = sizes_.choose(nodes_.pool());
  if (start.nodes.empty()) return stop_with(static_cast<int>(ExitCode::peer_lost), start.too_few);
  launch_ = std::move(start.launch);
  attempt_.emplace().nodes = std::move(start.nodes);
  nodes_.begin_work(attempt_->nodes);
  pace_.begin(attempt_->nodes.size());
  const int number = static_cast<int>(ledger_.attempts.size()) + 1;
  const double now_s = clock_.now_s();
  if (is_ms_train(options_.launch.command)) unlink((options_.run_dir + "/verdict.json").c_str());
  AttemptEntry& begun = ledger_.attempts.emplace_back();
  begun.number = number;
  begun.job = job();
  begun.nodes = attempt_->nodes;
  begun.began_s = clock_.wall_s();
  attempt_->watcher.emplace(number, attempt_->nodes, limits(), deadlines_, now_s);
  // A log of that name is there where a ledger was moved away: its lines are not of this attempt.
  struct stat old {};
  attempt_->output.emplace(files_.output(number), stat(files_.output(number).c_str(), &old) == 0 ? old.st_size : 0);
  log::info("driver", "attempt {} on {}{}", number, slurm::fold_hostlist(attempt_->nodes),
            nodes_.pool().with(NodeRole::spare).empty()
                ? std::string()
                : fmt::format(", spare: {}", slurm::fold_hostlist(nodes_.pool().with(NodeRole::spare))));
  if (orphan_) agents_.order(options_.nodes, {.what = "kill", .attempt = *orphan_});
  orphan_.reset();
  save();  // a driver that is killed from here on leaves an attempt that is known
  try {
    start_command();
  } catch (const Error& error) {  // no room for its output, most likely
    return not_started(error.message(), now_s);
  }
  phase_ = Phase::running;
  phase_s_ = now_s;
  save();
  comment(fmt::format("attempt {} begins", number));
}

// The time until steps are done again counts from the first of several failures.
void Driver::begin_recovery(double now_s) {
  if (fault_s_) return;
  fault_s_ = now_s;
  faulty_ = ledger_.attempts.size() - 1;
}

void Driver::alarm(Alarm found, double now_s) {
  log::warn("driver", "{}", found.why);
  entry().detect_s = now_s - found.fault_s;
  entry().alarm_s = wall_s(now_s);
  begin_recovery(now_s);
  attempt_->alarm = std::move(found);
  attempt_->alarm_s = now_s;
  attempt_->alarm_offset = attempt_->output->offset();
  phase_s_ = now_s;
  if (attempt_->alarm->kind != AlarmKind::hang) return end_command(now_s);
  if (attempt_->watcher->has_beats())  // the next status no longer tells of now
    Publisher::keep(files_.heartbeats(entry().number), status_json(status(), clock_.wall_s(), now_s));
  if (!attempt_->looked_early_s) look();
  if (attempt_->awaited.empty()) return end_command(now_s);
  phase_ = Phase::looking;
}

// A task ended badly. The others have some time to say the same or more, then they are ended: by their agents, and by
// srun where there is none. Returns whether that may go on, in which alarms would only hide it.
bool Driver::end_failed(double now_s) {
  if (!attempt_->words.failed_s() || !ends_with_bad_task(options_.launch)) return false;
  const double since_s = now_s - *attempt_->words.failed_s() - options_.limits.ending_s;
  if (since_s >= 0 && !std::exchange(attempt_->ends_tasks, true)) {
    agents_.order(attempt_->nodes, {.what = "kill", .attempt = entry().number});
    attempt_->command->signal(SIGTERM);
  }
  return since_s < watch::kKill_s;
}

// Shows what the tasks do, and where, to the judge and to people.
void Driver::look() {
  attempt_->tasks.clear();
  attempt_->awaited.clear();
  for (const std::string& node : attempt_->nodes) {
    if (!agents_.has(node)) continue;
    attempt_->awaited.insert(node);
  }
  // RAS knows all ranks at each node. Two nodes ask, because the cause may be in the one that asks.
  for (const std::string& node : attempt_->awaited) {
    const bool ras = node == *attempt_->awaited.begin() || node == *attempt_->awaited.rbegin();
    agents_.order(node, {.what = "look", .attempt = entry().number, .ras = ras});
  }
}

// Agents look for a third of a second, which need not come after the alarm. They only read /proc, and the result is
// dropped if the run makes progress. Flight recorders of other commands are dumped with the look, so those wait for the
// alarm.
void Driver::look_early(double now_s) {
  if (attempt_->looked_early_s && attempt_->watcher->last_progress_s() > *attempt_->looked_early_s) {
    attempt_->looked_early_s.reset();
    attempt_->tasks.clear();
  }
  const bool due = !attempt_->looked_early_s && attempt_->awaited.empty() && attempt_->watcher->nearly_hangs(now_s);
  if (!due || !is_ms_train(options_.launch.command)) return;
  look();
  attempt_->looked_early_s = now_s;
}

// The tasks first, each by the agent of its node, so that srun has nothing to wait for.
void Driver::end_command(double now_s) {
  phase_ = Phase::ending;
  if (attempt_->alarm->kind == AlarmKind::hang)
    attempt_->lossy = nodes_.lossy(attempt_->nodes);  // while the connections are there
  phase_s_ = now_s;
  attempt_->awaited.clear();
  for (const std::string& node : attempt_->nodes) {
    if (!agents_.has(node)) continue;
    if (std::ranges::find(attempt_->alarm->nodes, node) == attempt_->alarm->nodes.end() ||
        attempt_->alarm->kind != AlarmKind::node_lost) {
      attempt_->awaited.insert(node);
    }
    agents_.order(node, {.what = "kill", .attempt = entry().number});
  }
}

std::optional<VerdictRead> Driver::read_verdict() const {
  const std::string path = options_.run_dir + "/verdict.json";
  if (!is_ms_train(options_.launch.command) || access(path.c_str(), R_OK) != 0) return std::nullopt;
  return parse_verdict(read_file(path));
}

void Driver::settle(double now_s) {
  attempt_->ended_s = phase_s_ = now_s;
  phase_ = Phase::settling;
  const bool well = attempt_->ended_well();
  if (well) return;
  const int number = entry().number;
  std::vector<std::string> files = flight_files(flight_prefix(std::getenv), entry().began_s);
  // Agents looked and RAS was asked while the ranks hung.
  if (attempt_->alarm && attempt_->alarm->kind == AlarmKind::hang) {
    const std::vector<std::string> seen = evidence_files(files_.dir, number, entry().began_s);
    files.insert(files.end(), seen.begin(), seen.end());
  }
  const auto is_timeout = [](const SaidLine& line) { return line.known->cause == kCollectiveTimeout; };
  if (files.empty() && std::ranges::none_of(attempt_->lines(), is_timeout)) return;
  hang_judge_.begin(std::move(files), files_.output(number), attempt_->alarm_offset, files_.hang(number), now_s);
}

void Driver::finish_attempt(double now_s) {
  read_output(true);
  note_progress();
  const std::optional<HangVerdict> joint = attempt_->with_node(hang_judge_.take());  // looks at the tasks
  AttemptEvidence evidence{.alarm = attempt_->alarm,
                           .exit_status = attempt_->alarm ? std::nullopt : attempt_->command->status(),
                           .first_exit = attempt_->alarm ? std::nullopt : attempt_->words.first_exit(),
                           .verdict = read_verdict(),
                           .writes_verdicts = is_ms_train(options_.launch.command),
                           .asked_to_stop = asked_to_stop_,
                           .trained = entry().first_step_s != 0,
                           .printed_steps = attempt_->words.printed_steps(),
                           .said_usage = attempt_->words.said_usage(),
                           .nodes = attempt_->nodes,
                           .tasks_per_node = tasks_in_blocks_,
                           .lost = {},
                           .died_on = attempt_->watcher->first_dead(),
                           .tasks = std::move(attempt_->tasks),
                           .joint = joint,
                           .lossy = attempt_->lossy,
                           .lines = attempt_->lines()};
  // A rank of a node that is not heard may have died before those that are.
  if (std::ranges::any_of(attempt_->nodes, [&](const std::string& node) { return ledger_.unheard.contains(node); })) {
    evidence.died_on.clear();
  }
  const bool well = attempt_->ended_well();
  // Where slurmd is gone, ranks outlive srun.
  if (!well) agents_.order(attempt_->nodes, {.what = "kill", .attempt = entry().number});
  if (!well)
    evidence.lost = attempt_->alarm && attempt_->alarm->kind == AlarmKind::node_lost ? attempt_->alarm->nodes
                                                                                     : attempt_->watcher->lost(now_s);
  if (!well) nodes_.ask_slurm(evidence);
  // The heartbeat of the last step may not have arrived.
  if (evidence.verdict && entry().from_step >= 0)
    entry().to_step = std::max(entry().to_step, evidence.verdict->steps_done);
  Judgement judgement = judge(evidence);
  AttemptEntry& ended = entry();
  if (!attempt_->alarm) {
    ended.detect_s = std::max(0.0, attempt_->ended_s - attempt_->watcher->died_s().value_or(attempt_->ended_s));
    if (judgement.next == Next::again) begin_recovery(attempt_->ended_s);
  }
  ended.ended_s = wall_s(attempt_->ended_s);
  ended.cause = judgement.cause;
  ended.code = judgement.code;
  ended.why = judgement.why;
  ended.error = judgement.error;
  ended.rank = judgement.rank;
  ended.said_on = judgement.said_on;
  if (ledger_.same_error().nodes.size() > 1) judgement.suspects = {};
  ended.suspects = judgement.suspects;
  ended.diagnose_s = now_s - (attempt_->alarm ? attempt_->alarm_s : attempt_->ended_s);
  if (judgement.next == Next::again) {
    try {
      write_file_atomic(files_.evidence(ended.number), evidence_json(evidence, attempt_->alarm_s, wall_s(0)));
    } catch (const Error& error) { log::warn("driver", "the evidence is lost: {}", error.message()); }
    log::warn("driver", "attempt {} ended: {}: {}", ended.number, judgement.cause, judgement.why);
    comment(fmt::format("attempt {} ended: {}", ended.number, judgement.cause));
  }
  attempt_->command.reset();
  attempt_->watcher.reset();
  attempt_->output.reset();
  decide(judgement, now_s);
}

void Driver::decide(const Judgement& judgement, double now_s) {
  if (((resizes_ && judgement.cause == "stopped") || judgement.cause == kDrained || judgement.cause == kSlowNode) &&
      !asked_to_stop_) {
    if (!leaves_ || !queue_after_save()) begin_attempt();
    return;
  }
  const bool all =
      judgement.suspects.size() > 1 && judgement.suspects.size() == attempt_->nodes.size() && !judgement.certain;
  if (judgement.next == Next::again && !asked_to_stop_) {
    publisher_.tell("run-interrupted", judgement.suspects, judgement.cause, judgement.why);
    nodes_.accuse(judgement, all, now_s);
  }
  const Recovery next =
      recovery_after(judgement, {.ledger = ledger_,
                                 .attempts = static_cast<int>(ledger_.attempts.size()) - first_attempt_,
                                 .retry = options_.retry,
                                 .asked_to_stop = asked_to_stop_});
  if (next.code) return stop_with(*next.code, next.why);
  const double wait_s = next.wait_s;
  if (wait_s > 0) log::info("driver", "the next attempt begins in {:.0f} s", wait_s);
  if (all && options_.diagnose_level > 0) nodes_.check_network(now_s);
  wait_until_s_ = now_s + wait_s;
  phase_ = Phase::waiting;
  phase_s_ = now_s;
  save();
  if (wait_s == 0 && !nodes_.waits_for_network()) begin_attempt();
}

void Driver::stop_with(int code, const std::string& why) {
  const bool well = code == 0 || code == static_cast<int>(ExitCode::stopped);
  result_ = code;
  queues_again_ = may_requeue() && requeues_left() > 0;
  publisher_.tell(queues_again_ ? "run-queued"
                  : well        ? "run-ended"
                                : "run-failed",
                  {}, fmt::format("code {}", code), why);
  if (well) {
    log::info("driver", "{}", why);
  } else {
    log::error("driver", "the driver ends with code {}: {}", code, why);
  }
  save();
  comment(fmt::format("{} with code {}: {}", queues_again_ ? "queued again" : "ended", code, why));
}

// Starts that only changed the run's size mend nothing, and do not count.
int Driver::requeues_left() const {
  return options_.max_requeues - options_.restarts +
         static_cast<int>(std::ranges::count(ledger_.attempts, kResizesCause, &AttemptEntry::cause));
}

bool Driver::needs_nodes() const { return !asked_to_stop_ && result_ == static_cast<int>(ExitCode::peer_lost); }

// Whether another start can mend what ended the run: its time was up, or too few nodes were left.
bool Driver::may_requeue() const {
  const bool time_is_up = by_time_limit_ && result_ == static_cast<int>(ExitCode::stopped);
  return (time_is_up || needs_nodes()) && options_.max_requeues > 0;
}

void Driver::requeue() {
  // An expedited job for lack of nodes is Slurm's to start again.
  if (*result_ != 0 && !needs_nodes() && !may_requeue()) slurm_job_.end_for_good();
  if (!may_requeue()) return;
  if (!queues_again_) {
    return log::error("driver", "the job was queued again {}: no more",
                      plural(options_.max_requeues - requeues_left(), "time"));
  }
  std::signal(SIGTERM, SIG_IGN);  // a requeue ends this job's processes; what is left to do must be done first
  queues_again_ = slurm_job_.queue_again(bad_nodes(), nodes_.gone(), SlurmJob::kPatience_s);
  if (queues_again_) return;
  publisher_.tell("run-failed", {}, fmt::format("code {}", *result_), "Slurm did not queue the job again");
  comment(fmt::format("ended with code {}: Slurm did not queue the job again", *result_));
  publisher_.finish();
  show(clock_.now_s());
}

std::vector<std::string> Driver::bad_nodes() const {
  std::vector<std::string> bad = nodes_.pool().with(NodeRole::excluded);
  std::erase_if(bad, [&](const std::string& node) { return sizes_.given_back().contains(node); });
  return bad;
}

}  // namespace ms::driver
