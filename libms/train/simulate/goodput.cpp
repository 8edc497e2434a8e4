#include "train/simulate/goodput.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <queue>

#include "base/rng.h"
#include "watch/deadlines.h"

namespace ms::train {
namespace {

void bind_recovery(ConfigSchema& schema, RecoveryConfig& config) {
  schema.section("recovery", "What a recovery takes.", config, kRecoveryFields);
}

// An event of a node.
struct NodeEvent {
  enum class What : std::uint8_t { fault, slow_found, slow_ended };
  double at_s = 0;
  int node = 0;
  What what = What::fault;
  FaultKind kind = FaultKind::crash;
  double repair_s = 0;
  bool operator>(const NodeEvent& other) const { return at_s != other.at_s ? at_s > other.at_s : node > other.node; }
};

class SimulatedJob {
 public:
  SimulatedJob(const JobOptions& options, std::span<const NodeFault> faults, std::uint64_t seed)
      : options_(options),
        seed_(seed),
        faults_(faults),
        nodes_(static_cast<std::size_t>(options.nodes + options.spares)) {
    const double step_s = options.iteration_s;
    // A save that is due while the one before is still written is skipped.
    const double least_s = std::max(options.interval_s, options.recovery.write_s - options.recovery.stall_s);
    work_s_ = std::max(1.0, std::round(least_s / step_s)) * step_s;
  }

  JobOutcome run() {
    allocate();
    restart(options_.recovery.launch_s);
    while (now_s_ < options_.seconds) {
      const std::optional<NodeEvent> end = train();
      if (!end) break;
      ++outcome_.interruptions;
      recover(*end);
    }
    return outcome_;
  }

 private:
  struct Node {
    double well_s = 0;   // again
    bool held = false;   // in the allocation, and not left out
    bool works = false;  // in the attempt
    double slow_until_s = 0;
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
    Node& node = nodes_[static_cast<std::size_t>(event.node)];
    if (event.what == NodeEvent::What::slow_ended) return false;
    if (event.what == NodeEvent::What::slow_found) {
      if (!node.works || !is_slow(node)) return false;
      if (spares() > 0) {
        node.well_s = node.slow_until_s;
        return true;
      }
      await_slow(event.node);
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
    const bool found = options_.driver && found_s < until_s;
    later_.push({.at_s = found ? found_s : until_s,
                 .node = node,
                 .what = found ? NodeEvent::What::slow_found : NodeEvent::What::slow_ended});
  }

  long spares() const {
    return std::ranges::count_if(nodes_, [&](const Node& n) { return n.held && !n.works && n.well_s <= now_s_; });
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
      if (event->repair_s > 0 || event->what == NodeEvent::What::slow_found) leave_out(event->node);
    }
    now_s_ = until_s;
    return failed;
  }

  void leave_out(int node) {
    nodes_[static_cast<std::size_t>(node)].works = false;
    nodes_[static_cast<std::size_t>(node)].held = false;
  }

  // Spares take the places of those that left. false: there are too few.
  bool fill() {
    long missing = options_.nodes - std::ranges::count_if(nodes_, &Node::works);
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

  void requeue() {
    ++outcome_.requeues;
    for (Node& node : nodes_) node.works = node.held = false;
    spend(TimePart::restart, options_.recovery.requeue_s);
    const auto enough = static_cast<std::ptrdiff_t>(options_.nodes) - 1;
    while (now_s_ < options_.seconds) {
      std::vector<double> well_s;
      for (const Node& node : nodes_) well_s.push_back(node.well_s);
      std::ranges::nth_element(well_s, well_s.begin() + enough);
      const double wait_s = well_s[static_cast<std::size_t>(enough)] - now_s_;
      if (wait_s <= 0) break;
      spend(TimePart::waiting, wait_s);
    }
    allocate();
  }

  void restart(double seconds) {
    while (now_s_ < options_.seconds) {
      if (!fill()) requeue();
      if (!spend(TimePart::restart, seconds)) break;
    }
  }

  void recover(const NodeEvent& event) {
    const RecoveryConfig& costs = options_.recovery;
    const bool was_found = event.what == NodeEvent::What::slow_found;
    const auto notice = [&] {
      if (!was_found) spend(TimePart::detect, detection_s(options_, event.kind));
      if (options_.driver) spend(TimePart::diagnose, judgement_s(event.kind));
    };
    notice();
    bool over = !options_.driver;  // an operator must look
    if (options_.driver) {
      const auto located = [&] { return was_found || event.repair_s == 0 || draw() < costs.located; };
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
    if (event.repair_s > 0 || was_found) leave_out(event.node);
    if (over) requeue();
    restart(costs.launch_s + costs.load_s);
  }

  // Until a fault ends the attempt; nullopt: the days are over.
  std::optional<NodeEvent> train() {
    double cycled_s = 0;  // as it would take without slow nodes
    while (true) {
      const std::optional<NodeEvent> event = next(options_.seconds);
      const double until_s = event ? std::max(now_s_, event->at_s) : options_.seconds;
      const bool slow = std::ranges::any_of(nodes_, [&](const Node& n) { return n.works && is_slow(n); });
      const double passed_s = until_s - now_s_, fast_s = slow ? passed_s / options_.recovery.slow_factor : passed_s;
      cycled_s += fast_s;
      part(TimePart::slow) += passed_s - fast_s;
      now_s_ = until_s;
      if (event && !takes(*event)) continue;
      account(cycled_s, event.has_value());
      return event;
    }
  }

  // Splits the time of an attempt: intervals of work, each with its save; of one that failed only what was committed
  // is kept.
  void account(double cycled_s, bool failed) {
    const double stall_s = options_.recovery.stall_s, cycle_s = work_s_ + stall_s;
    const double cycles = std::floor(cycled_s / cycle_s), rest_s = cycled_s - cycles * cycle_s;
    const double trained_s = cycles * work_s_ + std::min(rest_s, work_s_);
    // A save begins with its stall, and is committed save_write after that began.
    const double late_s = std::max(0.0, options_.recovery.write_s - stall_s);
    const double kept_s = failed ? std::max(0.0, std::floor((cycled_s - late_s) / cycle_s)) * work_s_ : trained_s;
    part(TimePart::save) += cycled_s - trained_s;
    part(TimePart::trained) += kept_s;
    part(TimePart::lost) += trained_s - kept_s;
  }

  double draw() { return uniform(seed_, rng_key("fault located"), draws_++); }

  const JobOptions& options_;
  const std::uint64_t seed_;
  const std::span<const NodeFault> faults_;
  std::size_t next_fault_ = 0;
  std::priority_queue<NodeEvent, std::vector<NodeEvent>, std::greater<>> later_;  // about slow nodes
  std::vector<Node> nodes_;
  JobOutcome outcome_;
  double work_s_ = 0;  // between two saves
  double now_s_ = 0;
  std::int64_t attempts_ = 0;  // of this allocation
  std::uint64_t draws_ = 0;
};

}  // namespace

RecoveryConfig load_recovery(const std::vector<std::string>& assignments) {
  RecoveryConfig config;
  ConfigSchema schema;
  bind_recovery(schema, config);
  for (const std::string& assignment : assignments) schema.set(assignment);
  schema.throw_if_problems();
  return config;
}

std::vector<std::pair<std::string, std::string>> recovery_manual() {
  RecoveryConfig config;
  ConfigSchema schema;
  bind_recovery(schema, config);
  std::vector<std::pair<std::string, std::string>> items;
  for (const ConfigRow& row : schema.reference()) {
    items.emplace_back(fmt::format("{}.{}", row.section, row.key),
                       fmt::format("{} Without it: {}.", row.doc, row.default_value));
  }
  return items;
}

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
