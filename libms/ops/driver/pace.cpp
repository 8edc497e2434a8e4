#include "driver/pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace ms::driver {
namespace {

constexpr double kOwn = 0.5, kOthers = 0.1;  // shares of reports
constexpr int kLeastReports = 20;
constexpr double kNoProcessor = 0.2;  // of a processor

// Whether the kernel keeps a rank from running, as far as one can tell.
bool is_kept_from_running(const RankState& rank) {
  return rank.alive && (rank.state == 'T' || rank.state == 'D' || (rank.state == 'R' && rank.cpu <= kNoProcessor));
}

std::string_view words_for(char state) {
  if (state == 'T') return "is stopped by a signal";
  return state == 'R' ? "gets no processor" : "waits for a device or a file system";
}

}  // namespace

void Pace::begin(std::size_t nodes) {
  const double usual_s = usual_s_;
  const bool is_same = nodes == nodes_;
  *this = {};
  nodes_ = nodes;
  if (is_same) usual_s_ = usual_s;
}

void Pace::hear(const std::string& node, const std::vector<RankState>& ranks) {
  if (ranks.empty()) return;
  Seen& seen = seen_[node];
  ++seen.reports;
  const auto kept = std::ranges::find_if(ranks, is_kept_from_running);  // one of its ranks is enough
  if (kept != ranks.end()) ++seen.kept[kept->state];
}

void Pace::step(std::int64_t steps, double now_s) {
  if (steps < 0) return;
  if (from_step_ < 0 || steps < from_step_) {
    from_step_ = steps;
    from_s_ = now_s;
  }
  const std::int64_t done = steps - from_step_;
  const double seconds = now_s - from_s_;
  if (done < kLeastSteps || seconds < kLeast_s) return;
  end_block(seconds / static_cast<double>(done), seconds, now_s);
  from_step_ = steps;
  from_s_ = now_s;
}

void Pace::end_block(double step_s, double seconds, double now_s) {
  if (before_s_) usual_s_ = std::min(usual_s_, std::max(*before_s_, step_s));
  before_s_ = step_s;
  if (step_s < kTimes * usual_s_) {
    slow_blocks_ = 0;
    slow_lost_s_ = 0;
    slow_.reset();
    seen_.clear();
    return;
  }
  if (slow_blocks_++ == 0) slow_from_s_ = now_s - seconds;
  slow_lost_s_ += seconds * (1 - usual_s_ / step_s);
  if (slow_blocks_ < kInRow) return;
  lost_s_ += std::exchange(slow_lost_s_, 0);
  Slow slow{.usual_s = usual_s_, .step_s = step_s, .since_s = slow_from_s_, .node = {}, .state = '?', .why = {}};
  name_node(slow);
  slow_ = std::move(slow);
}

void Pace::name_node(Slow& slow) const {
  const auto share = [](const Seen& seen, char state) {
    const auto kept = seen.kept.find(state);
    return kept == seen.kept.end() ? 0.0 : static_cast<double>(kept->second) / seen.reports;
  };
  slow.why = "which node is slow is not known: all ranks wait for the slowest";
  if (seen_.size() < std::max<std::size_t>(2, nodes_) ||
      std::ranges::any_of(seen_, [](const auto& entry) { return entry.second.reports < kLeastReports; }))
    return;
  for (const auto& entry : seen_) {
    const Seen& seen = entry.second;
    for (const auto& kept : seen.kept) {
      const char state = kept.first;
      const bool alone = std::ranges::all_of(
          seen_, [&](const auto& other) { return &other.second == &seen || share(other.second, state) <= kOthers; });
      if (!alone || share(seen, state) < kOwn) continue;
      slow.node = entry.first;
      slow.state = state;
      slow.why = fmt::format("a rank of {} {} in {:.0f} % of the reports, and no rank of another node", slow.node,
                             words_for(state), 100 * share(seen, state));
      return;
    }
  }
}

}  // namespace ms::driver
