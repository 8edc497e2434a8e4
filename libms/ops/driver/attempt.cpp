// The attempts of a driver: their begin, their end, and what follows.
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "driver/agent.h"
#include "driver/driver.h"
#include "slurm/commands.h"
#include "slurm/hostlist.h"
#include "slurm/requeue.h"

namespace ms::driver {
namespace {

Json evidence_json(const AttemptEvidence& evidence) {
  Json tasks = Json::array(), lines = Json::array();
  for (const NodeTask& t : evidence.tasks) {
    tasks.push_back({{"node", t.node},
                     {"rank", t.task.rank},
                     {"step", t.step},
                     {"pid", t.task.pid},
                     {"state", std::string(1, t.task.state)},
                     {"cpu", t.task.cpu},
                     {"waits_in", t.task.waits_in},
                     {"stack", t.task.stack}});
  }
  for (const SaidLine& line : evidence.lines) {
    lines.push_back({{"node", line.node}, {"cause", line.known->cause}, {"text", line.text}});
  }
  Json json{{"schema", 1}, {"alarm", evidence.alarm ? evidence.alarm->why : ""}};
  json["lost"] = evidence.lost;
  json["died_on"] = evidence.died_on;
  json["tasks"] = std::move(tasks);
  json["lines"] = std::move(lines);
  return json;
}

}  // namespace

void Driver::start_command() {
  command_ = LongCommand::start(srun_command(launch_, nodes_),
                                environment_with({{"MS_ATTEMPT", std::to_string(entry().number)},
                                                  {"MS_HEARTBEAT", heartbeat_},
                                                  {"SLURM_PROCID", ""},
                                                  {"SLURM_HOSTFILE", ""}}),
                                files_.output(entry().number), files_.exit_status(entry().number));
}

void Driver::not_started(const std::string& why, double now_s) {
  log::warn("driver", "attempt {} does not begin: {}", entry().number, why);
  watcher_.reset();
  output_.reset();
  entry().ended_s = clock_.wall_s();
  entry().cause = "storage";
  entry().code = static_cast<int>(ExitCode::storage);
  entry().why = why;
  Judgement judgement;
  judgement.cause = entry().cause;
  judgement.code = entry().code;
  judgement.why = why;
  decide(judgement, now_s);
}

void Driver::begin_attempt() {
  lose_silent_spares(clock_.now_s());
  resizes_ = false;
  leaves_ = false;
  // Slurm without slurmdbd takes nodes out of a job once. What was saved is not lost if the job leaves by itself.
  if (!let_go() && options_.most_nodes != 0 && !ledger_.attempts.empty() && entry().cause == "stopped" &&
      queue_after_save())
    return;
  const std::optional<std::vector<std::string>> chosen = choose_nodes();
  if (!chosen) return;
  nodes_ = *chosen;
  // Nodes at work are not measured. Who is still in doubt is looked at again, with others.
  if (std::ranges::any_of(nodes_, [&](const std::string& node) { return network_.looks_at(node); })) network_.stop();
  const int number = static_cast<int>(ledger_.attempts.size()) + 1;
  const double now_s = clock_.now_s();
  if (is_ms_train(options_.launch.command)) unlink((options_.run_dir + "/verdict.json").c_str());
  AttemptEntry& begun = ledger_.attempts.emplace_back();
  begun.number = number;
  begun.job = job();
  begun.nodes = nodes_;
  begun.began_s = clock_.wall_s();
  watcher_.emplace(number, nodes_, limits(), deadlines_, now_s);
  // A log of that name is there where a ledger was moved away: its lines are not of this attempt.
  struct stat old {};
  output_.emplace(files_.output(number), stat(files_.output(number).c_str(), &old) == 0 ? old.st_size : 0);
  alarm_.reset();
  looked_early_s_.reset();
  awaited_.clear();
  tasks_.clear();
  lines_.clear();
  first_exit_.reset();
  log::info("driver", "attempt {} on {}{}", number, slurm::fold_hostlist(nodes_),
            pool_.with(NodeRole::spare).empty()
                ? std::string()
                : fmt::format(", spare: {}", slurm::fold_hostlist(pool_.with(NodeRole::spare))));
  for (const std::string& node : options_.nodes) {
    if (orphan_) agents_.order(node, {.what = "kill", .attempt = *orphan_});
  }
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
  if (is_elastic()) comment(fmt::format("attempt {} begins", number));
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
  begin_recovery(now_s);
  alarm_ = std::move(found);
  alarm_s_ = now_s;
  phase_s_ = now_s;
  if (alarm_->kind != AlarmKind::hang) return end_command(now_s);
  if (!looked_early_s_) look();
  if (awaited_.empty()) return end_command(now_s);
  phase_ = Phase::looking;
}

// Shows what the tasks do, and where, to the judge and to people.
void Driver::look() {
  tasks_.clear();
  awaited_.clear();
  for (const std::string& node : nodes_) {
    if (!agents_.has(node)) continue;
    awaited_.insert(node);
    agents_.order(node, {.what = "look", .attempt = entry().number});
  }
}

// The look takes a third of a second, which need not follow the alarm. It only reads /proc, and is forgotten where the
// run gets on. Other commands' flight recorders are dumped with it: they wait for the alarm.
void Driver::look_early(double now_s) {
  if (looked_early_s_ && watcher_->last_progress_s() > *looked_early_s_) {
    looked_early_s_.reset();
    tasks_.clear();
  }
  const bool due = !looked_early_s_ && awaited_.empty() && watcher_->nearly_hangs(now_s);
  if (!due || !is_ms_train(options_.launch.command)) return;
  look();
  looked_early_s_ = now_s;
}

// The tasks first, each by the agent of its node, so that srun has nothing to wait for.
void Driver::end_command(double now_s) {
  phase_ = Phase::ending;
  if (alarm_->kind == AlarmKind::hang) lossy_ = losses_.lossy(nodes_);  // while the connections are there
  phase_s_ = now_s;
  awaited_.clear();
  for (const std::string& node : nodes_) {
    if (!agents_.has(node)) continue;
    if (std::ranges::find(alarm_->nodes, node) == alarm_->nodes.end() || alarm_->kind != AlarmKind::node_lost) {
      awaited_.insert(node);
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
  ended_s_ = phase_s_ = now_s;
  phase_ = Phase::settling;
  const bool well = !alarm_ && command_->status() == 0;
  if (!well) flight_.begin(flight_files(flight_prefix(std::getenv), entry().began_s), now_s);
}

std::optional<FlightNode> Driver::flight_node() {
  const std::optional<FlightVerdict> verdict = flight_.take();
  if (!verdict) return std::nullopt;
  const auto node_of = [&]() -> std::string {
    for (const std::string& node : nodes_) {
      if (!verdict->host.empty() && node == verdict->host.substr(0, verdict->host.find('.'))) return node;
    }
    for (const NodeTask& task : tasks_) {
      if (task.task.rank == verdict->rank) return task.node;
    }
    const auto known = watcher_->ranks().find(verdict->rank);
    return known == watcher_->ranks().end() ? "" : known->second.node;
  };
  return FlightNode{
      .node = node_of(), .confidence = verdict->confidence, .mismatch = verdict->mismatch, .why = verdict->why};
}

void Driver::finish_attempt(double now_s) {
  read_output(true);
  note_progress(now_s);
  const std::optional<FlightNode> flight = flight_node();
  AttemptEvidence evidence{.alarm = alarm_,
                           .exit_status = alarm_ ? std::nullopt : command_->status(),
                           .first_exit = alarm_ ? std::nullopt : first_exit_,
                           .verdict = read_verdict(),
                           .writes_verdicts = is_ms_train(options_.launch.command),
                           .asked_to_stop = asked_to_stop_,
                           .nodes = nodes_,
                           .lost = {},
                           .died_on = watcher_->first_dead(),
                           .tasks = std::move(tasks_),
                           .flight = flight,
                           .lossy = std::exchange(lossy_, {}),
                           .lines = std::move(lines_)};
  tasks_.clear();
  lines_.clear();
  const bool well = !alarm_ && command_->status() == 0;
  // Where slurmd is gone, ranks outlive srun.
  for (const std::string& node : nodes_) {
    if (!well) agents_.order(node, {.what = "kill", .attempt = entry().number});
  }
  if (!well) evidence.lost = alarm_ && alarm_->kind == AlarmKind::node_lost ? alarm_->nodes : watcher_->lost(now_s);
  if (!well) ask_slurm(evidence);
  // The heartbeat of the last step may not have arrived.
  if (evidence.verdict && entry().from_step >= 0)
    entry().to_step = std::max(entry().to_step, evidence.verdict->steps_done);
  const Judgement judgement = judge(evidence);
  AttemptEntry& ended = entry();
  if (!alarm_) {
    ended.detect_s = std::max(0.0, ended_s_ - watcher_->died_s().value_or(ended_s_));
    if (judgement.next == Next::again) begin_recovery(ended_s_);
  }
  ended.ended_s = wall_s(ended_s_);
  ended.cause = judgement.cause;
  ended.code = judgement.code;
  ended.why = judgement.why;
  ended.suspects = judgement.suspects;
  ended.diagnose_s = now_s - (alarm_ ? alarm_s_ : ended_s_);
  if (judgement.next == Next::again) {
    try {
      write_file_atomic(files_.evidence(ended.number), evidence_json(evidence).dump(2) + "\n");
    } catch (const Error& error) { log::warn("driver", "the evidence is lost: {}", error.message()); }
    log::warn("driver", "attempt {} ended: {}: {}", ended.number, judgement.cause, judgement.why);
    comment(fmt::format("attempt {} ended: {}", ended.number, judgement.cause));
  }
  command_.reset();
  watcher_.reset();
  output_.reset();
  decide(judgement, now_s);
}

void Driver::decide(const Judgement& judgement, double now_s) {
  if (resizes_ && judgement.cause == "stopped" && !asked_to_stop_) {
    if (!leaves_ || !queue_after_save()) begin_attempt();
    return;
  }
  if (judgement.next != Next::again) {
    return stop_with(judgement.code, judgement.next == Next::done ? "done" : judgement.why);
  }
  if (asked_to_stop_) return stop_with(judgement.code, judgement.why);
  tell("run-interrupted", judgement.suspects, judgement.cause, judgement.why);
  bool left_out = false;
  waits_for_network_ = false;
  const bool all = judgement.suspects.size() > 1 && judgement.suspects.size() == nodes_.size() && !judgement.certain;
  for (const std::string& node : judgement.suspects) {
    if (judgement.cause == "node_lost") {
      if (pool_.nodes().at(node).role != NodeRole::unusable) pool_.lose(node, judgement.why);
    } else if (judgement.certain) {
      leave_out(node, judgement.why);
      entry().excluded.push_back(node);
    } else {
      pool_.suspect(node, judgement.why);
    }
    if (judgement.network && !all) network_doubts_.insert(node);
    if (!all) ++ledger_.strikes[node];  // who is looked at because all are is not accused
    left_out = left_out || judgement.certain;
  }
  const int made = static_cast<int>(ledger_.attempts.size()) - first_attempt_;
  if (made >= options_.retry.max_attempts) {
    return stop_with(static_cast<int>(ExitCode::no_progress),
                     fmt::format("{} {} made", plural(made, "attempt"), made == 1 ? "was" : "were"));
  }
  if (ledger_.ends_again_for(kMismatchCause)) {
    return stop_with(static_cast<int>(ExitCode::no_progress),
                     "the same collective mismatch occurred again, without another step: " + judgement.why);
  }
  // To leave a bad node is a way on too, and has its end in their number.
  const int idle = left_out ? 0 : ledger_.idle_attempts();
  if (idle >= options_.retry.max_idle) {
    return stop_with(
        static_cast<int>(ExitCode::no_progress),
        fmt::format("{} in a row {}; the last one: {}", plural(idle, "attempt"),
                    ledger_.best_step() < 0 ? "did no step"
                                            : fmt::format("made no progress beyond step {}", ledger_.best_step()),
                    judgement.why));
  }
  const double wait_s =
      watch::wait_before_attempt_s(idle, judgement.cause == "storage" || judgement.cause.starts_with(kSlurmCauses));
  if (wait_s > 0) log::info("driver", "the next attempt begins in {:.0f} s", wait_s);
  if (all && options_.diagnose_level > 0) check_network(now_s);
  wait_until_s_ = now_s + wait_s;
  phase_ = Phase::waiting;
  phase_s_ = now_s;
  save();
  if (wait_s == 0 && !waits_for_network_) begin_attempt();
}

void Driver::stop_with(int code, const std::string& why) {
  const bool well = code == 0 || code == static_cast<int>(ExitCode::stopped);
  tell(well ? "run-ended" : "run-failed", {}, fmt::format("code {}", code), why);
  if (well) {
    log::info("driver", "{}", why);
  } else {
    log::error("driver", "the driver ends with code {}: {}", code, why);
  }
  comment(fmt::format("ended with code {}: {}", code, why));
  result_ = code;
  save();
}

// Queues the job again for what another start can mend: its time was up, or too few nodes were left.
void Driver::requeue() {
  const bool time_is_up = by_time_limit_ && result_ == static_cast<int>(ExitCode::stopped);
  const bool needs_nodes = !asked_to_stop_ && result_ == static_cast<int>(ExitCode::peer_lost);
  if ((!time_is_up && !needs_nodes) || options_.max_requeues == 0) return;
  // Starts that only changed the run's size mend nothing.
  const auto mended =
      options_.restarts - static_cast<int>(std::ranges::count(ledger_.attempts, kResizesCause, &AttemptEntry::cause));
  if (mended >= options_.max_requeues) {
    return log::error("driver", "the job was queued again {}: no more", plural(mended, "time"));
  }
  std::signal(SIGTERM, SIG_IGN);  // a requeue ends this job's processes; what is left to do must be done first
  queue_again();
}

// Without the nodes that are bad; returns whether that worked.
bool Driver::queue_again() {
  std::vector<std::string> out = pool_.with(NodeRole::excluded);
  std::erase_if(out, [&](const std::string& node) { return given_back_.contains(node); });
  for (const NodeRole role : {NodeRole::lost, NodeRole::unusable}) {
    for (const std::string& node : pool_.with(role)) out.push_back(node);
  }
  // Slurm without slurmdbd changes nothing of a job that has shrunk, until it has ended: it would stay held. The ledger
  // leaves those nodes out, too.
  if (kept_ != options_.nodes.size()) out.clear();
  try {
    const slurm::Commands slurm({.conf = options_.slurm_conf});
    const auto job = static_cast<std::uint32_t>(options_.job);
    if (out.empty()) {
      slurm.requeue(job);
    } else {
      slurm::requeue_excluding(slurm, job, out, {}, clock_);
    }
    log::info("driver", "the job is queued again{}",
              out.empty() ? std::string() : fmt::format(", without {}", slurm::fold_hostlist(out)));
    return true;
  } catch (const Error& error) { log::error("driver", "the job is not queued again: {}", error.message()); }
  return false;
}

}  // namespace ms::driver
