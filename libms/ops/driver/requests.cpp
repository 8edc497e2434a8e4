// Obeys people and Slurm: nodes leave the run or the job, it gets another size, it stops.
#include <algorithm>
#include <csignal>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "driver/driver.h"
#include "driver/recovery.h"
#include "slurm/hostlist.h"

namespace ms::driver {
namespace {

constexpr double kAskIdle_s = 600;  // between two questions to Slurm for idle nodes

}  // namespace

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
    if (!nodes_.pool().nodes().contains(node)) {
      said = fmt::format("{} is not a node of this job", plain_text(node, 80));
    } else if (nodes_.pool().nodes().at(node).role == NodeRole::excluded) {
      said = fmt::format("{} is out already", node);
    } else {
      const bool works = nodes_.pool().nodes().at(node).role == NodeRole::works && phase_ == Phase::running;
      nodes_.leave_out(node, "evicted by a person");
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
  } else if (word("ask") == "readmit") {
    said = nodes_.readmit(node);
  } else if (word("ask") == "give-back") {
    const std::optional<std::vector<std::string>> nodes = slurm::expand_hostlist(word("nodes"));
    said = nodes ? give_back(*nodes) : fmt::format("'{}' is no list of nodes", plain_text(word("nodes"), 80));
  } else if (word("ask") == "resize") {
    const Json* number = json->find("number");
    if (number != nullptr && number->is_number_unsigned()) {
      const Sizes::Answer answer =
          sizes_.resize(number->get<std::size_t>(), nodes_.pool().usable(), attempt_->nodes.size());
      if (answer.continues) save_and_go_on();
      said = answer.said;
    }
  } else if (word("ask") == "stop") {
    asked_to_stop_ = true;
    if (attempt_->command) attempt_->command->signal(SIGUSR2);
    said = attempt_->command ? "the run was told to save and stop" : "no attempt runs: the driver stops";
    if (!attempt_->command) stop_with(static_cast<int>(ExitCode::stopped), "stopped by a person");
  }
  hub_.send(event.id, Json{{"answer", said}}.dump());
}

// The run saves, and its job is queued again.
std::string Driver::leave() {
  if (phase_ != Phase::running || resizes_) return "no attempt runs that could save now";
  leaves_ = true;
  save_and_go_on();
  return "the run saves, and the job is queued again";
}

// Returns whether the job is queued; if it cannot be, the run continues with the nodes that it has.
bool Driver::queue_after_save() {
  std::signal(SIGTERM, SIG_IGN);  // a requeue ends this job's processes
  entry().cause = slow_node_.empty() ? kResizesCause : kSlowNode;
  save();
  std::vector<std::string> bad = bad_nodes();
  if (!slow_node_.empty()) bad.push_back(slow_node_);
  if (slurm_job_.queue_again(bad, nodes_.gone(), 0)) {
    result_ = static_cast<int>(ExitCode::stopped);
    queues_again_ = true;
    return true;
  }
  std::signal(SIGTERM, SIG_DFL);
  entry().cause = "stopped";
  return false;
}

// The run ends after its step with a checkpoint, and decide() begins the next attempt.
void Driver::save_and_go_on() {
  if (phase_ != Phase::running) return;  // the attempt that comes next has the new size anyway
  resizes_ = true;
  begin_recovery(clock_.now_s());
  attempt_->command->signal(SIGUSR2);
}

std::string Driver::give_back(const std::vector<std::string>& nodes) {
  std::vector<std::string> taken;
  const Sizes::Answer answer = sizes_.give_back(nodes, nodes_.pool(), taken);
  if (!answer.said.empty()) return answer.said;
  leaves_ = false;
  save();
  const std::string names = slurm::fold_hostlist(taken);
  if (!answer.continues || phase_ != Phase::running) {
    slurm_job_.let_go(sizes_.given_back());
    return fmt::format("the job lets go of {}", names);
  }
  save_and_go_on();
  return fmt::format("the run saves, and continues without {}", names);
}

// SIGUSR1 came: something has changed in the job's partition, and only Slurm says what in a way that can be trusted.
void Driver::look_at_partition() {
  const std::optional<SlurmJob::Change> change = slurm_job_.change(sizes_.given_back());
  if (!change) return;
  if (change->gone.empty()) {
    const Sizes::Answer answer = sizes_.grow(change->idle, attempt_->nodes.size());
    return log::warn("driver", "SIGUSR1 was received: {}", answer.continues ? leave() : answer.said);
  }
  // Without the node of its script the job has to go.
  const bool all = change->gone.front() == options_.nodes.front();
  log::warn("driver", "{} {} asked back: {}", slurm::fold_hostlist(change->gone),
            change->gone.size() == 1 ? "is" : "are", all ? leave() : give_back(change->gone));
}

// Before an attempt: by spares, as far as there are some.
void Driver::replace_drained() {
  std::vector<std::string> leaving;
  for (const std::string& node : nodes_.drained_at_work(true)) {
    if (node == options_.nodes.front()) continue;
    leaving.push_back(node);
    if (!nodes_.pool().can_replace(leaving)) {
      leaving.pop_back();
      continue;
    }
    nodes_.heed_drain(node, true);
    sizes_.give_back(node);
  }
}

// An administrator drained nodes of the run. Slurm lets a job finish on them, which may take weeks. The run leaves them
// behind a checkpoint: ms-train makes one, other commands name the section of a step that saves. Without a spare, and
// for the node of the batch script, which cannot leave its job, the job is queued again, if it may be.
void Driver::heed_drains(double now_s) {
  if (options_.health_s > 0 && now_s - asked_slurm_s_ >= options_.health_s) {
    drains_.ask();
    asked_slurm_s_ = now_s;
  }
  if (const std::optional<Drained> drained = drains_.take()) {
    const std::vector<std::string> idle = nodes_.take_drained(*drained, now_s, clock_.wall_s());
    for (const std::string& node : idle) sizes_.give_back(node);
    if (!idle.empty()) slurm_job_.let_go(sizes_.given_back());
  }
  const std::vector<std::string> nodes = nodes_.drained_at_work(false);
  if (nodes.empty() || phase_ != Phase::running || resizes_ || asked_to_stop_) return;
  const bool saves = is_ms_train(options_.launch.command);
  if (!saves && !attempt_->watcher->has_saved_since(nodes_.drained_s())) return;
  const bool has_host = std::ranges::find(nodes, options_.nodes.front()) != nodes.end();
  const bool replaces = !has_host && nodes_.pool().can_replace(nodes);
  leaves_ = !replaces && options_.max_requeues > 0;
  for (const std::string& node : nodes) {
    nodes_.heed_drain(node, replaces);
    if (replaces) sizes_.give_back(node);
  }
  const std::string names = slurm::fold_hostlist(nodes);
  if (!replaces && !leaves_)
    return log::warn("driver", "the run keeps {}: there is no spare, and no --max-requeues", names);
  std::string why = fmt::format("the run leaves {}, which an administrator drained, behind a checkpoint{}", names,
                                leaves_ ? ", and the job is queued again" : "");
  if (!saves)
    return alarm({.kind = AlarmKind::drained, .nodes = nodes, .ranks = {}, .fault_s = now_s, .why = std::move(why)},
                 now_s);
  log::warn("driver", "{}", why);
  save_and_go_on();
}

// A node whose ranks wait for a device may wait for storage that all nodes share.
std::string Driver::replaceable_slow_node() const {
  return options_.replace_slow && pace_.slow() && pace_.slow()->state != 'D' ? pace_.slow()->node : "";
}

watch::SlowAnswer Driver::answer_slow(double now_s) {
  watch::SlowNodes slow = slow_node_of(*pace_.slow(), ledger_, clock_.wall_s());
  const Pool& pool = nodes_.pool();
  slow.spares = pool.can_replace({pace_.slow()->node}) ? pool.with(NodeRole::spare).size() : 0;
  if (options_.ends_s > clock_.wall_s()) slow.left_s = options_.ends_s - clock_.wall_s();
  if (requeues_left() > 0) slow.queue_wait_s = options_.queue_wait_s;
  watch::SlowAnswer answer = watch::answer_slow(slow);
  if (answer.action != watch::SlowAction::requeue) return answer;
  // A job that is queued again without the node must not wait until that is repaired.
  if (now_s - asked_idle_s_ >= kAskIdle_s) {
    const std::optional<SlurmJob::Change> change = slurm_job_.change(sizes_.given_back());
    has_idle_ = change && change->idle > 0;
    asked_idle_s_ = now_s;
  }
  if (has_idle_) return answer;
  slow.queue_wait_s.reset();
  return watch::answer_slow(slow);
}

// Names a run that got slower, and leaves the node that this is due to, if that is known and wanted, and costs less.
void Driver::heed_pace(double now_s) {
  if (phase_ != Phase::running || !attempt_->watcher) return;
  const bool was_slow = pace_.slow().has_value();
  const std::string was_node = was_slow ? pace_.slow()->node : "";
  pace_.step(attempt_->watcher->steps(), now_s);
  entry().slow_s = pace_.lost_s();
  const auto note = [&](const char* code, const std::string& node, const std::string& text) {
    log::warn("driver", "{}", text);
    ledger_.add({.at_s = clock_.wall_s(),
                 .code = code,
                 .nodes = node.empty() ? std::vector<std::string>() : std::vector{node},
                 .text = text});
    save();
  };
  if (!pace_.slow()) {
    kept_slow_.clear();
    told_slow_ = false;
    if (!was_node.empty()) note(kSlowEnded, was_node, fmt::format("steps are as fast as before {} was slow", was_node));
    return;
  }
  const Pace::Slow& slow = *pace_.slow();
  if (!was_slow || (was_node.empty() && !slow.node.empty())) note(kSlow, slow.node, slow_text(slow));
  // A busy machine makes steps slow for a minute: people hear of what stays.
  constexpr double kStays_s = 600;
  if (!told_slow_ && now_s - slow.since_s >= kStays_s) {
    publisher_.tell("run-slow", slow.node.empty() ? std::vector<std::string>{} : std::vector{slow.node}, "slow",
                    slow_text(slow));
    told_slow_ = true;
  }
  const std::string node = replaceable_slow_node();
  if (node.empty() || resizes_ || asked_to_stop_) return;
  const watch::SlowAnswer answer = answer_slow(now_s);
  if (answer.action == watch::SlowAction::stay) {
    if (std::exchange(kept_slow_, node) != node) note(kSlowStays, node, fmt::format("{} stays: {}", node, answer.why));
    return;
  }
  const bool saves = is_ms_train(options_.launch.command);
  if (!saves && !attempt_->watcher->has_saved_since(slow.since_s)) return;
  slow_node_ = node;
  leaves_ = answer.action == watch::SlowAction::requeue;
  std::string why = fmt::format("the run leaves {} behind a checkpoint{}: {}; {}", node,
                                leaves_ ? ", and the job is queued again" : "", slow.why, answer.why);
  if (!saves)
    return alarm({.kind = AlarmKind::slow, .nodes = {node}, .ranks = {}, .fault_s = now_s, .why = std::move(why)},
                 now_s);
  log::warn("driver", "{}", why);
  save_and_go_on();
}

}  // namespace ms::driver
