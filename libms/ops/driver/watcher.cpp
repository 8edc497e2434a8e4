#include "driver/watcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace ms::driver {
namespace {

constexpr std::string_view kEnded = "done";
constexpr std::array<const char*, 2> kSaves{"save", "checkpoint"};
constexpr double kSlowTimes = 3, kSlow_s = 2;            // a lost node is found before that
constexpr double kOverdueTimes = 1.5, kOverdue_s = 0.5;  // of the longest time that a section took
constexpr double kNodeFirst_s = 1;                       // who is lost is said before that ranks hang
constexpr double kStoppedSlack_s = 2;                    // nothing that a healthy rank waits for stops it by a signal
constexpr double kClear_s = 2;                           // of a view of all ranks
constexpr double kBusy = 0.5, kIdle = 0.2;               // processors: half of one costs less than deadlines allow for

// It neither has a processor nor waits for others, as far as one can tell: a rank that may only be slow.
bool may_be_slowed(const RankState& before, const RankState& now) {
  const bool lacks_processor = now.cpu <= kIdle && now.state == 'R' && before.state == 'R';
  return (now.cpu > kIdle && now.cpu < kBusy) || lacks_processor || now.state == 'D';
}

}  // namespace

Watcher::Watcher(int attempt, std::vector<std::string> nodes, const WatchLimits& limits, watch::Deadlines& deadlines,
                 double now_s)
    : attempt_(attempt),
      limits_(limits),
      deadlines_(deadlines),
      progress_{.at_s = now_s},
      output_{.at_s = now_s},
      unclear_s_(now_s) {
  for (std::string& node : nodes) nodes_[std::move(node)] = {.heard = {.at_s = now_s}};
}

void Watcher::report(const std::string& node, const Report& report, double now_s) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  heard(node, now_s);
  if (report.attempt != attempt_) return;
  for (const auto& [section, seconds] : report.took) deadlines_.took(section, seconds);
  for (const RankState& state : report.ranks) {
    const auto [rank, is_new] = ranks_.try_emplace(state.rank, Rank{.node = node, .state = state, .changed_s = now_s});
    Rank& known = rank->second;
    if (known.state.alive && !state.alive && state.section != kEnded) {
      known.died_s = now_s;
      if (!died_s_) died_s_ = now_s;
    }
    const bool moved = state.step != known.state.step || state.section != known.state.section;
    if (is_new || moved) {
      known.changed_s = now_s - std::max(0.0, state.section_s);
      progress_ = {.at_s = std::max(progress_.at_s, known.changed_s)};
    }
    if (may_be_slowed(known.state, state)) unclear_s_ = now_s;
    known.node = node;
    known.state = state;
  }
  if (std::ranges::none_of(kSaves, [&](const char* section) { return report.took.contains(section); })) return;
  saved_s_ = now_s;
  for (const auto& [number, rank] : ranks_) saved_step_ = std::max(saved_step_, rank.state.step);
}

void Watcher::heard(const std::string& node, double now_s) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return;
  const double silent_s = now_s - alive_s(found->second);
  if (silent_s > limits_.silent_s()) resend_s_ = std::max(resend_s_, now_s + silent_s);
  found->second.heard = {.at_s = now_s};
  found->second.closed = false;
}

void Watcher::closed(const std::string& node) {
  const auto found = nodes_.find(node);
  if (found != nodes_.end()) found->second.closed = true;
}

void Watcher::answered(const std::string& node, double now_s) {
  const auto found = nodes_.find(node);
  if (found != nodes_.end()) found->second.answered = {.at_s = now_s};
}

void Watcher::Sign::forgive(double seconds) {
  if (away_s >= kMostAway_s) return;
  at_s += seconds;
  away_s += seconds;
}

void Watcher::was_away(double seconds) {
  for (auto& [name, node] : nodes_) {
    node.heard.forgive(seconds);
    if (node.answered) node.answered->forgive(seconds);
  }
  progress_.forgive(seconds);
  output_.forgive(seconds);
  if (died_s_) *died_s_ += seconds;
}

// Every rank either has a processor, or half of one at least, or waits, and has for a while: a step that is slow for
// want of processors or disks does not look so.
bool Watcher::is_clear(double now_s) const {
  return now_s - unclear_s_ >= kClear_s && std::ranges::all_of(nodes_, [&](const auto& entry) {
           return now_s - entry.second.heard.at_s < limits_.ask_s();
         });
}

double Watcher::deadline_s(double now_s) const {
  double deadline_s = ranks_.empty() ? limits_.hang_s : 0;
  const std::string* last = nullptr;  // most ranks are in the same section as the one before them
  // A rank that a signal has stopped saves nothing: what its loop may do at this place is no reason to wait.
  const bool is_stopped =
      std::ranges::any_of(ranks_, [](const auto& entry) { return entry.second.state.state == 'T'; });
  const bool is_clear_now = is_clear(now_s);
  const double unnamed_s = is_stopped ? 0 : std::min(limits_.unnamed_s, limits_.hang_s);
  for (const auto& [number, rank] : ranks_) {
    if (last != nullptr && *last == rank.state.section) continue;
    last = &rank.state.section;
    double slack_s = is_clear_now ? watch::Deadlines::kRegularSlack_s : deadlines_.slack_s(*last);
    if (is_stopped) slack_s = kStoppedSlack_s;
    deadline_s = std::max(deadline_s, deadlines_.of(*last, slack_s));
    if (*last == kUnnamedSection) deadline_s = std::max(deadline_s, unnamed_s);
  }
  return deadline_s;
}

bool Watcher::nearly_hangs(double now_s) const {
  return has_beats() && !ended() && now_s - progress_.at_s > deadline_s(now_s) - kEarly_s;
}

std::optional<double> Watcher::of_sections(std::optional<double> (watch::Deadlines::*known)(std::string_view)
                                               const) const {
  const std::string* last = nullptr;
  std::optional<double> longest_s;
  for (const auto& [number, rank] : ranks_) {
    if (last != nullptr && *last == rank.state.section) continue;
    last = &rank.state.section;
    const std::optional<double> seconds = (deadlines_.*known)(*last);
    if (!seconds) return std::nullopt;
    longest_s = std::max(longest_s.value_or(0), *seconds);
  }
  return longest_s;
}

bool Watcher::is_slow(double now_s) const {
  const std::optional<double> typical_s = of_sections(&watch::Deadlines::typical_s);
  return typical_s && !ended() && now_s - progress_.at_s > kSlowTimes * *typical_s + kSlow_s;
}

std::optional<Alarm> Watcher::check(double now_s, bool is_replaceable) const {
  Alarm alarm;
  for (const auto& [number, rank] : ranks_) {
    if (rank.state.alive || rank.state.section == kEnded) continue;
    alarm.ranks.push_back(number);
    if (std::ranges::find(alarm.nodes, rank.node) == alarm.nodes.end()) alarm.nodes.push_back(rank.node);
  }
  if (limits_.say_done && !alarm.ranks.empty() && died_s_ && now_s - *died_s_ > limits_.ending_s) {
    alarm.kind = AlarmKind::rank_died;
    alarm.fault_s = *died_s_;
    alarm.why = fmt::format("rank {} died, and the others did not end", fmt::join(alarm.ranks, ", "));
    return alarm;
  }
  if (ended()) return std::nullopt;
  alarm = {.kind = AlarmKind::node_lost, .nodes = {}, .ranks = {}, .fault_s = now_s, .why = {}};
  for (const auto& [name, node] : nodes_) {
    const double last_s = has_beats() ? std::max(alive_s(node), progress_.at_s) : alive_s(node);
    if (now_s - last_s <= silence_s(node, is_replaceable)) continue;
    alarm.nodes.push_back(name);
    alarm.fault_s = std::min(alarm.fault_s, last_s);
  }
  // All of them at once is us, not them.
  if (!alarm.nodes.empty() && alarm.nodes.size() < nodes_.size()) {
    for (const auto& [number, rank] : ranks_) {
      if (std::ranges::find(alarm.nodes, rank.node) != alarm.nodes.end()) alarm.ranks.push_back(number);
    }
    alarm.why = fmt::format("{} stopped responding, and no step ended since", fmt::join(alarm.nodes, ", "));
    return alarm;
  }
  const double since_s = has_beats() ? progress_.at_s : output_.at_s;
  // Ranks that wait for a node that is paused do not hang.
  const bool waits = now_s < resend_s_ || (!is_replaceable && !lost(now_s).empty());
  if (now_s - since_s > std::max(deadline_s(now_s), waits ? limits_.node_s + kNodeFirst_s : 0)) {
    return Alarm{.kind = AlarmKind::hang,
                 .nodes = {},
                 .ranks = {},
                 .fault_s = since_s,
                 .why = has_beats() ? fmt::format("no rank made progress for {:.1f} s", now_s - since_s)
                                    : fmt::format("the command wrote nothing for {:.0f} s", now_s - since_s)};
  }
  return std::nullopt;
}

std::int64_t Watcher::steps() const {
  std::int64_t steps = -1;
  bool first = true;
  for (const auto& [number, rank] : ranks_) {
    steps = first ? rank.state.step : std::min(steps, rank.state.step);
    first = false;
  }
  return steps;
}

std::int64_t Watcher::steps_of(int rank) const {
  const auto known = ranks_.find(rank);
  return known == ranks_.end() ? -1 : known->second.state.step;
}

bool Watcher::ended() const {
  return !ranks_.empty() &&
         std::ranges::all_of(ranks_, [](const auto& entry) { return entry.second.state.section == kEnded; });
}

double Watcher::alive_s(const Node& node) const {
  return std::max(node.heard.at_s, node.answered.value_or(node.heard).at_s);
}

double Watcher::silence_s(const Node& node, bool is_replaceable) const {
  const double least_s = node.answered ? limits_.silent_s() : limits_.unheard_s();
  const std::optional<double> longest_s = of_sections(&watch::Deadlines::longest_s);
  if (!is_replaceable || (!longest_s && !node.closed)) return std::max(least_s, limits_.node_s);
  return std::max(least_s, std::min(kOverdueTimes * longest_s.value_or(0) + kOverdue_s, limits_.node_s));
}

bool Watcher::is_lost(const Node& node, double alive_s, double now_s) const {
  return now_s - alive_s > (node.answered ? limits_.silent_s() : limits_.unheard_s());
}

std::vector<std::string> Watcher::lost(double now_s) const {
  std::vector<std::string> names;
  for (const auto& [name, node] : nodes_) {
    if (is_lost(node, alive_s(node), now_s)) names.push_back(name);
  }
  if (names.size() == nodes_.size()) names.clear();  // all of them at once is us
  return names;
}

bool Watcher::heard_all_since(double since_s, double now_s) const {
  return std::ranges::all_of(nodes_, [&](const auto& entry) {
    return entry.second.heard.at_s > since_s || is_lost(entry.second, alive_s(entry.second), now_s);
  });
}

std::vector<std::string> Watcher::unasked_or_silent(double seconds, double now_s) const {
  std::vector<std::string> names;
  for (const auto& [name, node] : nodes_) {
    if (!node.answered || now_s - node.heard.at_s > seconds) names.push_back(name);
  }
  return names;
}

std::vector<std::string> Watcher::first_dead() const {
  constexpr double kTogether_s = 0.05;  // one report
  std::vector<std::string> names;
  for (const auto& [number, rank] : ranks_) {
    if (!rank.died_s || *rank.died_s > *died_s_ + kTogether_s) continue;
    if (std::ranges::find(names, rank.node) == names.end()) names.push_back(rank.node);
  }
  return names;
}

}  // namespace ms::driver
