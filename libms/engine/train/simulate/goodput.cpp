#include "train/simulate/goodput.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>

#include "base/rng.h"
#include "watch/deadlines.h"

namespace ms::train {
namespace {

// An event of a node.
struct NodeEvent {
  // whole: nodes for all of it are well; fast: slow nodes are left, by `answer`.
  enum class What : std::uint8_t { fault, slow_found, slow_ended, whole, fast };
  double at_s = 0;
  int node = 0;
  What what = What::fault;
  FaultKind kind = FaultKind::crash;
  double repair_s = 0;
  watch::SlowAction answer = watch::SlowAction::stay;
  bool operator>(const NodeEvent& other) const { return at_s != other.at_s ? at_s > other.at_s : node > other.node; }
};

class SimulatedJob {
 public:
  SimulatedJob(const JobOptions& options, std::span<const NodeFault> faults, std::uint64_t seed)
      : options_(options),
        seed_(seed),
        faults_(faults),
        outages_(options.outages),
        nodes_(static_cast<std::size_t>(options.nodes + options.spares)) {
    const double step_s = options.iteration_s;
    // A save that is due while the one before is still written is skipped.
    const double least_s = std::max(options.interval_s, options.recovery.write_s - options.recovery.stall_s);
    work_s_ = std::max(1.0, std::round(least_s / step_s)) * step_s;
  }

  JobOutcome run() {
    allocate();
    restart(options_.recovery.launch_s, 0, false);
    while (now_s_ < options_.seconds) {
      const std::optional<NodeEvent> end = train();
      if (!end) break;
      if (end->what == NodeEvent::What::whole) {
        leave_behind_save(true);
        continue;
      }
      ++outcome_.interruptions;
      if (end->what == NodeEvent::What::fast) {
        leave_behind_save(end->answer == watch::SlowAction::requeue);
      } else {
        recover(*end);
      }
    }
    return outcome_;
  }

 private:
  struct Node {
    double well_s = 0;   // again
    bool held = false;   // in the allocation, and not left out
    bool works = false;  // in the attempt
    double slow_until_s = 0;
    bool slow_found = false;  // by the driver's checks
  };

  double& part(TimePart which) { return outcome_.parts_s[static_cast<std::size_t>(which)]; }
  bool is_slow(const Node& node) const { return node.slow_until_s > now_s_; }

  std::optional<NodeEvent> next(double until_s) {
    const bool fault_first =
        next_fault_ < faults_.size() && (later_.empty() || faults_[next_fault_].begin_s <= later_.top().at_s);
    if (fault_first) {
      const NodeFault& fault = faults_[next_fault_];
      if (fault.begin_s > until_s) return std::nullopt;
      ++next_fault_;
      return NodeEvent{.at_s = fault.begin_s, .node = fault.node, .kind = fault.kind, .repair_s = fault.repair_s};
    }
    if (later_.empty() || later_.top().at_s > until_s) return std::nullopt;
    const NodeEvent event = later_.top();
    later_.pop();
    return event;
  }

  // Whether the attempt ends of it.
  bool takes(const NodeEvent& event) {
    if (event.what == NodeEvent::What::whole || event.what == NodeEvent::What::fast) return true;
    Node& node = nodes_[static_cast<std::size_t>(event.node)];
    if (event.what != NodeEvent::What::fault) {
      node.slow_found = is_slow(node);
      return false;
    }
    if (node.well_s > event.at_s) return false;  // it is out already
    if (event.kind == FaultKind::slow && node.works) {
      node.slow_until_s = std::max(node.slow_until_s, event.at_s + event.repair_s);
      await_slow(event.node);
      return false;
    }
    node.well_s = event.at_s + event.repair_s;
    if (!node.works && event.repair_s > 0) node.held = false;
    return node.works;
  }

  void await_slow(int node) {
    const double until_s = nodes_[static_cast<std::size_t>(node)].slow_until_s;
    const double found_s = now_s_ + options_.recovery.slow_found_s;
    later_.push({.at_s = until_s, .node = node, .what = NodeEvent::What::slow_ended});
    if (options_.driver && found_s < until_s)
      later_.push({.at_s = found_s, .node = node, .what = NodeEvent::What::slow_found});
  }

  bool is_known_slow(const Node& node) const { return node.slow_found && is_slow(node); }

  // The driver's answer to the slow nodes that it knows; it knows how often it was interrupted, too. nullopt: none
  // works, or storage is away.
  std::optional<NodeEvent> leaves_slow() const {
    watch::SlowNodes slow{
        .nodes = 0,
        .times = options_.recovery.slow_factor,
        .lasts_s = options_.slow_lasts_s,
        .faults_per_s = outcome_.interruptions / std::max(1.0, now_s_),
        .left_s = options_.seconds - now_s_,
        .restart_s = options_.recovery.write_s + options_.recovery.launch_s + options_.recovery.load_s};
    std::size_t others = 0;  // that the queue has
    for (const Node& node : nodes_) {
      slow.nodes += node.works && is_known_slow(node);
      if (node.works || node.well_s > now_s_ || is_slow(node)) continue;
      ++(node.held ? slow.spares : others);
    }
    if (slow.nodes == 0 || away_in(now_s_, now_s_ + options_.recovery.write_s) != nullptr) return std::nullopt;
    if (slow.spares + others >= slow.nodes) slow.queue_wait_s = options_.recovery.requeue_s;
    const watch::SlowAction answer = watch::answer_slow(slow).action;
    if (answer == watch::SlowAction::stay) return std::nullopt;
    return NodeEvent{.at_s = now_s_, .what = NodeEvent::What::fast, .answer = answer};
  }

  // Time that passes without training. Returns whether a node of the attempt failed in it: that is out then.
  bool spend(TimePart which, double seconds) {
    const double until_s = std::min(now_s_ + seconds, options_.seconds);
    part(which) += until_s - now_s_;
    bool failed = false;
    while (const std::optional<NodeEvent> event = next(until_s)) {
      now_s_ = std::max(now_s_, event->at_s);
      if (!takes(*event)) continue;
      failed = true;
      if (event->repair_s > 0) leave_out(event->node);
    }
    now_s_ = until_s;
    return failed;
  }

  void leave_out(int node) {
    nodes_[static_cast<std::size_t>(node)].works = false;
    nodes_[static_cast<std::size_t>(node)].held = false;
  }

  // Spares take the places of those that left. false: there are too few, for smaller sizes, too.
  bool fill() {
    if (options_.driver) {
      for (Node& node : nodes_) node.works = node.works && !is_known_slow(node);  // but where no other is left
    }
    if (fill_up_to(options_.nodes)) {
      size_ = {.nodes = options_.nodes};
      return true;
    }
    if (!shrinks()) return false;
    const auto there = static_cast<int>(std::ranges::count_if(nodes_, &Node::works));
    const auto fits = std::ranges::find_if(options_.smaller, [&](const SmallerSize& s) { return s.nodes <= there; });
    if (fits == options_.smaller.end()) return false;
    int surplus = there - fits->nodes;  // they are spares now
    for (Node& node : nodes_) {
      if (surplus == 0) break;
      surplus -= node.works;
      node.works = false;
    }
    outcome_.shrinks += size_.nodes > fits->nodes;
    size_ = *fits;
    return true;
  }

  bool fill_up_to(int nodes) {
    long missing = nodes - std::ranges::count_if(nodes_, &Node::works);
    for (const bool slow_too : {false, true}) {
      for (Node& node : nodes_) {
        if (missing == 0) return true;
        if (!node.held || node.works || node.well_s > now_s_ || (is_slow(node) && !slow_too)) continue;
        node.works = true;
        --missing;
      }
    }
    return missing == 0;
  }

  // The job gets all nodes that are well.
  void allocate() {
    for (Node& node : nodes_) {
      node.works = false;
      node.held = node.well_s <= now_s_;
    }
    fill();
    attempts_ = 0;
  }

  // When so many nodes are well, if nothing happens until then.
  double well_by(int nodes) const {
    std::vector<double> well_s;
    for (const Node& node : nodes_) well_s.push_back(node.well_s);
    std::ranges::nth_element(well_s, well_s.begin() + (nodes - 1));
    return well_s[static_cast<std::size_t>(nodes) - 1];
  }

  bool shrinks() const { return options_.driver && !options_.smaller.empty(); }

  void requeue() {
    ++outcome_.requeues;
    for (Node& node : nodes_) node.works = node.held = false;
    spend(TimePart::restart, options_.recovery.requeue_s);
    while (now_s_ < options_.seconds) {
      const double wait_s = well_by(shrinks() ? options_.smaller.back().nodes : options_.nodes) - now_s_;
      if (wait_s <= 0) break;
      spend(TimePart::waiting, wait_s);
    }
    allocate();
  }

  void restart(double launch_s, double load_s, bool loads) {
    while (now_s_ < options_.seconds) {
      if (!fill()) requeue();
      const double load_at_s = now_s_ + launch_s;
      const Outage* const away = loads ? away_in(load_at_s, load_at_s) : nullptr;
      if (away != nullptr && spend(TimePart::storage, away->end_s - load_at_s)) continue;
      if (!spend(TimePart::restart, launch_s + load_s)) break;
    }
  }

  // The first time within these, ends included, in which storage is away; nullptr: it never is.
  const Outage* away_in(double begin_s, double end_s) const {
    const auto first = std::ranges::upper_bound(outages_, begin_s, {}, &Outage::end_s);
    return first != outages_.end() && first->begin_s <= end_s ? &*first : nullptr;
  }

  // The run saves, and its next attempt has other nodes.
  void leave_behind_save(bool queued) {
    spend(TimePart::save, options_.recovery.write_s);
    if (queued) requeue();
    restart(options_.recovery.launch_s, options_.recovery.load_s, true);
  }

  void recover(const NodeEvent& event) {
    const RecoveryConfig& costs = options_.recovery;
    const auto notice = [&] {
      spend(TimePart::detect, detection_s(options_, event.kind));
      if (options_.driver) spend(TimePart::diagnose, judgement_s(event.kind));
    };
    notice();
    bool over = !options_.driver;  // an operator must look
    if (options_.driver) {
      const auto located = [&] { return event.repair_s == 0 || draw() < costs.located; };
      ++attempts_;
      for (int idle = 0; !over && !located() && now_s_ < options_.seconds; ++attempts_) {
        spend(TimePart::restart, watch::wait_before_attempt_s(idle, false) + costs.launch_s + costs.load_s);
        notice();
        over = ++idle >= costs.max_idle;
      }
      over = over || attempts_ >= costs.max_attempts;
      outcome_.given_up += over;
    }
    if (over) spend(TimePart::diagnose, costs.operator_s);
    if (event.repair_s > 0) leave_out(event.node);
    if (over) requeue();
    restart(costs.launch_s, costs.load_s, true);
  }

  // When a run that has shrunk can grow: nodes for its whole size are well, and it can save.
  double whole_again_s() const {
    if (size_.nodes == options_.nodes) return std::numeric_limits<double>::infinity();
    const double well_s = std::max(now_s_, well_by(options_.nodes));
    const Outage* const away = away_in(well_s, well_s + options_.recovery.write_s);
    return away != nullptr ? away->end_s : well_s;
  }

  // Until a fault ends the attempt, or the run grows; nullopt: the days are over.
  std::optional<NodeEvent> train() {
    progress_.assign(1, Progress{.at_s = now_s_});
    while (true) {
      const double grows_s = whole_again_s();
      std::optional<NodeEvent> event = leaves_slow();
      if (!event) event = next(std::min(options_.seconds, grows_s));
      if (!event && grows_s < options_.seconds) event = NodeEvent{.at_s = grows_s, .what = NodeEvent::What::whole};
      const double until_s = event ? std::max(now_s_, event->at_s) : options_.seconds;
      const bool slow = std::ranges::any_of(nodes_, [&](const Node& n) { return n.works && is_slow(n); });
      const double passed_s = until_s - now_s_, fast_s = slow ? passed_s / options_.recovery.slow_factor : passed_s;
      const double whole_s = fast_s / size_.slower;
      part(TimePart::slow) += passed_s - fast_s;
      part(TimePart::shrunk) += fast_s - whole_s;
      now_s_ = until_s;
      progress_.push_back({.at_s = now_s_, .cycled_s = progress_.back().cycled_s + whole_s});
      if (event && !takes(*event)) continue;
      account(event && event->what == NodeEvent::What::fault);
      return event;
    }
  }

  // Splits the time of an attempt: intervals of work, each with its save; of one that failed only what was committed
  // is kept.
  void account(bool failed) {
    const double cycled_s = progress_.back().cycled_s;
    const double stall_s = options_.recovery.stall_s, cycle_s = work_s_ + stall_s;
    const double cycles = std::floor(cycled_s / cycle_s), rest_s = cycled_s - cycles * cycle_s;
    const double trained_s = cycles * work_s_ + std::min(rest_s, work_s_);
    // A save begins with its stall, and is committed save_write after that began.
    const double late_s = std::max(0.0, options_.recovery.write_s - stall_s);
    double saves = std::max(0.0, std::floor((cycled_s - late_s) / cycle_s));
    while (saves > 0 && away_in(when(saves * cycle_s - stall_s), when(saves * cycle_s + late_s)) != nullptr) --saves;
    const double kept_s = failed ? saves * work_s_ : trained_s;
    part(TimePart::save) += cycled_s - trained_s;
    part(TimePart::trained) += kept_s;
    part(TimePart::lost) += trained_s - kept_s;
  }

  // The time at which the attempt was so far.
  double when(double cycled_s) const {
    const auto after = std::ranges::lower_bound(progress_, cycled_s, {}, &Progress::cycled_s);
    if (after == progress_.begin()) return after->at_s;
    if (after == progress_.end()) return progress_.back().at_s;
    const auto before = after - 1;
    const double share = (cycled_s - before->cycled_s) / (after->cycled_s - before->cycled_s);
    return before->at_s + share * (after->at_s - before->at_s);
  }

  double draw() { return uniform(seed_, rng_key("fault located"), draws_++); }

  const JobOptions& options_;
  const std::uint64_t seed_;
  const std::span<const NodeFault> faults_;
  const std::span<const Outage> outages_;
  std::size_t next_fault_ = 0;
  std::priority_queue<NodeEvent, std::vector<NodeEvent>, std::greater<>> later_;  // about slow nodes
  std::vector<Node> nodes_;
  JobOutcome outcome_;
  // How far the attempt was at which time, as it would be without slow nodes and in its whole size.
  struct Progress {
    double at_s = 0, cycled_s = 0;
  };
  std::vector<Progress> progress_;
  SmallerSize size_;   // that the attempt has
  double work_s_ = 0;  // between two saves
  double now_s_ = 0;
  std::int64_t attempts_ = 0;  // of this allocation
  std::uint64_t draws_ = 0;
};

}  // namespace

double JobOutcome::effective() const {
  return at(TimePart::trained) / std::accumulate(parts_s.begin(), parts_s.end(), 0.0);
}

double detection_s(const JobOptions& options, FaultKind kind) {
  watch::WatchLimits limits;
  limits.every_s = watch::report_every_s(static_cast<std::size_t>(options.nodes + options.spares));
  limits.hang_s = options.recovery.hang_timeout_s;
  if (kind == FaultKind::crash) return limits.ending_s + (options.driver ? limits.every_s / 2 : 0);
  if (kind == FaultKind::slow) return 0;
  if (options.driver && kind == FaultKind::lost) return limits.silent_s();
  watch::Deadlines deadlines(options.driver ? limits.hang_s : options.comm_timeout_s);
  for (std::size_t i = 0; i < watch::Deadlines::kEnough; ++i) deadlines.took("step", options.iteration_s);
  return options.driver ? deadlines.of("step") : deadlines.sure("step", options.least_timeout_s);
}

double judgement_s(FaultKind kind) {
  return watch::kKill_s + watch::kVerdict_s + (kind == FaultKind::hang ? watch::kLooking_s : 0);
}

JobOutcome simulate_job(const JobOptions& options, std::span<const NodeFault> faults, std::uint64_t seed) {
  return SimulatedJob(options, faults, seed).run();
}

Estimate estimate(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  if (values.size() < 2) return {.mean = mean};
  return {.mean = mean, .error = 2 * std::sqrt(squares / (count - 1) / count)};
}

}  // namespace ms::train
