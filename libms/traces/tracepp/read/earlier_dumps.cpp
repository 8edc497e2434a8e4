#include "tracepp/read/flight_recorder_run.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace ms::tracepp {
namespace {

bool is_transfer_event(const RunTrace& trace, const Event& event) {
  return trace::is_point_to_point(trace.info(event).kind);
}

class EarlierDumps {
 public:
  explicit EarlierDumps(RunTrace& trace) : trace_(trace) {}

  void leave_out() {
    for (const RankTrace& rank : trace_.ranks) {
      Span span{.first_ns = std::numeric_limits<std::int64_t>::max(), .last_ns = 0};
      for (const Event& event : rank.events) {
        span.first_ns = std::min(span.first_ns, event.begin_ns);
        span.last_ns = std::max(span.last_ns, event.end_ns());
      }
      spans_.push_back(span);
      if (!rank.events.empty()) firsts_.push_back(span.first_ns);
    }
    std::ranges::sort(firsts_);
    std::vector<std::pair<std::size_t, double>> found;
    for (std::size_t at = 0; at < spans_.size(); ++at)
      if (const double earlier_s = this->earlier_s(at); earlier_s > 0) found.emplace_back(at, earlier_s);
    for (const auto& [at, earlier_s] : found) {
      RankTrace& rank = trace_.ranks[at];
      if (set_clock(at)) continue;
      rank.events.clear();
      rank.newest.clear();
      rank.stacks.clear();
      rank.is_cut_off = true;
      rank.is_partial = rank.hides_failures = false;
      rank.earlier_s = earlier_s;
      ++trace_.problems["dump of an earlier time, left out"];
    }
  }

 private:
  struct Span {
    std::int64_t first_ns = 0, last_ns = 0;
  };
  static constexpr std::int64_t kMargin_ns = 60'000'000'000;  // far more than clocks or the dumps of a run differ by

  double earlier_s(std::size_t at) const {
    const RankTrace& rank = trace_.ranks[at];
    if (rank.events.empty()) return 0;
    const std::int64_t before_ns = spans_[at].last_ns + kMargin_ns;
    const auto newer = firsts_.end() - std::ranges::upper_bound(firsts_, before_ns);
    if (static_cast<std::size_t>(newer) * 2 < firsts_.size()) return 0;
    std::vector<std::int64_t> lasts, files;
    bool is_broken = false;
    for (std::size_t other = 0; other < spans_.size(); ++other) {
      if (trace_.ranks[other].events.empty() || spans_[other].first_ns <= before_ns) continue;
      lasts.push_back(spans_[other].last_ns);
      files.push_back(trace_.ranks[other].file_ns);
      is_broken = is_broken || (lasts.size() <= kAsked && ended_too_early(rank, trace_.ranks[other]));
    }
    const bool is_file_older = rank.file_ns + kMargin_ns < middle(files);
    if (!is_file_older && (!is_broken || static_cast<std::size_t>(newer) * 2 == firsts_.size())) return 0;
    return 1e-9 * static_cast<double>(middle(lasts) - spans_[at].last_ns);
  }

  // Returns whether a collective ended in one dump long before the other rank issued it.
  bool ended_too_early(const RankTrace& one, const RankTrace& other) const {
    std::map<std::pair<std::int32_t, std::uint32_t>, std::int64_t> ends_ns;
    for (const Event& event : one.events)
      if (event.state == State::ended && needs_all_members(trace_.info(event).kind))
        ends_ns.try_emplace({trace_.info(event).group, event.detail}, event.end_ns());
    return std::ranges::any_of(other.events, [&](const Event& event) {
      const auto ended = ends_ns.find({trace_.info(event).group, event.detail});
      return ended != ends_ns.end() && event.begin_ns > ended->second + kMargin_ns;
    });
  }

  // Puts the times of a rank on the clock of another if only its clock is behind: its file is as new, and it is as far
  // as most others in each group. Returns whether that is so.
  bool set_clock(std::size_t at) {
    RankTrace& rank = trace_.ranks[at];
    const Places own = places(rank);
    std::size_t asked = 0;
    std::vector<std::size_t> alike;
    for (std::size_t other = 0; other < spans_.size() && asked < kAsked; ++other) {
      if (trace_.ranks[other].events.empty() || spans_[other].first_ns <= spans_[at].last_ns + kMargin_ns) continue;
      ++asked;
      if (rank.file_ns + kMargin_ns >= trace_.ranks[other].file_ns && places(trace_.ranks[other]) == own)
        alike.push_back(other);
    }
    if (own.empty() || alike.size() * 2 <= asked) return false;
    const RankTrace& other = trace_.ranks[alike.front()];
    std::map<std::pair<std::int32_t, std::uint32_t>, std::int64_t> begins_ns;
    for (const Event& event : other.events)
      if (!is_transfer_event(trace_, event))
        begins_ns.try_emplace({trace_.info(event).group, event.detail}, event.begin_ns);
    std::vector<std::int64_t> behind_ns;
    for (const Event& event : rank.events) {
      const auto begin = begins_ns.find({trace_.info(event).group, event.detail});
      if (!is_transfer_event(trace_, event) && begin != begins_ns.end())
        behind_ns.push_back(begin->second - event.begin_ns);
    }
    if (behind_ns.empty()) return false;
    const std::int64_t by_ns = middle(behind_ns);
    for (Event& event : rank.events) event.begin_ns += by_ns;
    rank.last_flush_ns = rank.clock_ns = rank.realtime_ns = other.last_flush_ns;
    rank.is_flush_time_known = other.is_flush_time_known;
    ++trace_.problems["clock far behind those of others, set by the numbers of its calls"];
    return true;
  }

  using Places = std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>>;  // by group: newest, and newest ended

  Places places(const RankTrace& rank) const {
    Places found;
    for (const Event& event : rank.events) {
      if (is_transfer_event(trace_, event) || event.detail == kNoDetail) continue;
      auto& [newest, ended] = found.try_emplace(trace_.info(event).group, -1, -1).first->second;
      newest = std::max<std::int64_t>(newest, event.detail);
      if (event.state == State::ended) ended = std::max<std::int64_t>(ended, event.detail);
    }
    return found;
  }

  static std::int64_t middle(std::vector<std::int64_t>& values) {
    const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, half);
    return *half;
  }

  static constexpr std::size_t kAsked = 4;  // ranks

  RunTrace& trace_;
  std::vector<Span> spans_;           // by rank
  std::vector<std::int64_t> firsts_;  // of the ranks with entries, rising
};

}  // namespace

bool needs_all_members(Kind kind) {
  return kind == Kind::all_reduce || kind == Kind::all_gather || kind == Kind::reduce_scatter ||
         kind == Kind::all_to_all || kind == Kind::barrier;
}

void leave_out_earlier(RunTrace& trace) { EarlierDumps(trace).leave_out(); }

}  // namespace ms::tracepp
