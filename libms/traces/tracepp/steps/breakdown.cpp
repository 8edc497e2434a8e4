#include "tracepp/steps/breakdown.h"

#include <algorithm>
#include <limits>

#include "tracepp/parallel.h"
#include "tracepp/steps/steps.h"

namespace ms::tracepp {
namespace {

constexpr std::uint16_t kNotAKind = 0xffff;
constexpr std::size_t kAxes = kWaitOrder.size();
// The reasons for which the compute lane waits, in order of precedence: the axes, then these.
constexpr std::size_t kCopy = kAxes, kSave = kAxes + 1, kDataWait = kAxes + 2, kReasons = kAxes + 3;

// The properties of an EventInfo that a sweep needs.
struct WorkRole {
  std::uint16_t kind = kNotAKind;  // in Breakdown::kinds
  bool computes = false;
  bool is_comm = false;
  GroupAxis axis = GroupAxis::other;
  std::size_t reason = kReasons;  // first in the order of waiting; kReasons: none
};

// Returns the role of each EventInfo of the trace. Fills `kinds` with the kinds of work that occur.
std::vector<WorkRole> roles(const RunTrace& trace, std::vector<KindOfWork>& kinds) {
  std::vector<std::uint16_t> number_of(static_cast<std::size_t>(trace::kKinds) * trace::kPurposes, kNotAKind);
  const auto place = [](const EventInfo& info) {
    return static_cast<std::size_t>(info.kind) * trace::kPurposes + static_cast<std::size_t>(info.purpose);
  };
  for (const EventInfo& info : trace.infos)
    if (info.kind != Kind::step) number_of[place(info)] = 0;
  for (std::size_t i = 0; i < number_of.size(); ++i) {
    if (number_of[i] == kNotAKind) continue;
    number_of[i] = static_cast<std::uint16_t>(kinds.size());
    kinds.push_back({static_cast<Kind>(i / trace::kPurposes), static_cast<Purpose>(i % trace::kPurposes)});
  }
  std::vector<WorkRole> roles;
  for (const EventInfo& info : trace.infos) {
    WorkRole role;
    role.kind = number_of[place(info)];
    role.computes = trace::is_section(info.kind) || trace::is_op(info.kind);
    role.is_comm = trace::is_comm(info.kind);
    if (role.is_comm) {
      if (info.group >= 0) role.axis = trace.groups[static_cast<std::size_t>(info.group)].axis;
      role.reason = static_cast<std::size_t>(std::ranges::find(kWaitOrder, role.axis) - kWaitOrder.begin());
    } else if (info.origin == Origin::copy) {
      role.reason = kCopy;
    } else if (info.kind == Kind::save) {
      role.reason = kSave;
    } else if (info.kind == Kind::data_wait) {
      role.reason = kDataWait;
    }
    roles.push_back(role);
  }
  return roles;
}

struct EventInterval {
  std::int64_t begin_ns, end_ns;
  std::uint32_t event;
};

// A stretch of the compute lane within one step.
struct Computing {
  std::int64_t begin_ns, end_ns;
  std::int64_t before_ns;   // time that all stretches before it take
  std::int64_t stalled_ns;  // of it
  std::int64_t tp_ns;       // some tp message was under way in it
  std::size_t span;
};

// Sweeps once over the events of a rank in order of begin. A union of intervals then needs only the end of its newest
// one.
class Sweep {
 public:
  Sweep(const RankTrace& rank, const std::vector<EventInfo>& infos, const std::vector<WorkRole>& roles,
        std::size_t kinds)
      : rank_(rank), infos_(infos), roles_(roles), spans_(step_spans(rank, infos)), kind_end_(kinds, kBefore) {
    for (const StepSpan& span : spans_) {
      steps.push_back({.step = span.step, .begin_ns = span.begin_ns, .length_ns = span.length_ns(), .axes = {}});
    }
    exposed_.resize(spans_.size());
  }

  void run(std::span<KindTime> kinds) {
    if (spans_.empty()) return;
    sort_events();
    lay_out_computing();
    for (const EventInterval& interval : intervals_) {
      while (first_span_ < spans_.size() && spans_[first_span_].end_ns <= interval.begin_ns) ++first_span_;
      if (first_span_ == spans_.size()) break;
      while (first_computing_ < computing_.size() && computing_[first_computing_].end_ns <= interval.begin_ns)
        ++first_computing_;
      const WorkRole& role = roles_[rank_.events[interval.event].info];
      count_kind(interval, role, kinds);
      if (role.reason < kReasons) count_waiting(interval, role);
    }
    close();
  }

  std::vector<StepTime> steps;

 private:
  static constexpr std::int64_t kBefore = std::numeric_limits<std::int64_t>::min();

  void sort_events() {
    const std::int64_t first = spans_.front().begin_ns, last = spans_.back().end_ns;
    intervals_.reserve(rank_.events.size());
    for (std::size_t i = 0; i < rank_.events.size(); ++i) {
      const Event& event = rank_.events[i];
      if (event.state != State::ended || roles_[event.info].kind == kNotAKind) continue;
      if (event.end_ns() <= first || event.begin_ns >= last) continue;
      intervals_.push_back({event.begin_ns, event.end_ns(), static_cast<std::uint32_t>(i)});
    }
    // The longest of those that begin together comes first: ops lie inside sections.
    const auto earlier = [](const EventInterval& a, const EventInterval& b) {
      return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : a.end_ns > b.end_ns;
    };
    std::ranges::sort(intervals_, earlier);
  }

  // Calls info(span, begin, end) for the parts of [begin, end) that lie in steps, from span `from` on.
  template <typename EventInfo>
  void within_steps(std::size_t from, std::int64_t begin, std::int64_t end, const EventInfo& info) const {
    for (std::size_t s = first_after(spans_, from, begin); s < spans_.size() && spans_[s].begin_ns < end; ++s) {
      const std::int64_t a = std::max(begin, spans_[s].begin_ns), b = std::min(end, spans_[s].end_ns);
      if (a < b) info(s, a, b);
    }
  }

  // Returns the index of the first of `stretches`, which do not overlap, from `from` on that ends after `time_ns`. It
  // is mostly `from` itself, but one event may span a million others.
  template <typename Stretch>
  static std::size_t first_after(const std::vector<Stretch>& stretches, std::size_t from, std::int64_t time_ns) {
    if (from == stretches.size() || stretches[from].end_ns > time_ns) return from;
    const auto next = std::ranges::upper_bound(stretches.begin() + static_cast<std::ptrdiff_t>(from), stretches.end(),
                                               time_ns, {}, &Stretch::end_ns);
    return static_cast<std::size_t>(next - stretches.begin());
  }

  void lay_out_computing() {
    std::int64_t until = kBefore, before = 0;
    std::size_t span = 0;
    for (const EventInterval& interval : intervals_) {
      const Event& event = rank_.events[interval.event];
      if (!roles_[event.info].computes || interval.end_ns <= until) continue;
      while (span < spans_.size() && spans_[span].end_ns <= interval.begin_ns) ++span;
      const bool is_known = trace::is_section(infos_[event.info].kind) && event.detail != kNoDetail;
      const std::int64_t computed =
          !is_known ? event.duration_ns : std::min<std::int64_t>(std::int64_t{event.detail} * 1000, event.duration_ns);
      const double stalled = 1 - static_cast<double>(computed) / static_cast<double>(event.duration_ns);
      within_steps(span, std::max(interval.begin_ns, until), interval.end_ns,
                   [&](std::size_t s, std::int64_t a, std::int64_t b) {
                     const bool is_whole = b - a == event.duration_ns;
                     const auto stalled_ns = is_whole ? event.duration_ns - computed
                                                      : static_cast<std::int64_t>(stalled * static_cast<double>(b - a));
                     computing_.push_back({a, b, before, stalled_ns, 0, s});
                     before += b - a;
                   });
      until = interval.end_ns;
    }
  }

  // Returns the time before t in which the compute lane was in a section. t must not be before the current interval.
  std::int64_t computing_before(std::int64_t t) const {
    auto next = computing_.begin() + static_cast<std::ptrdiff_t>(first_computing_);
    for (int near = 0; near < 4 && next != computing_.end() && next->begin_ns <= t; ++near) ++next;
    if (next != computing_.end() && next->begin_ns <= t)
      next = std::upper_bound(next, computing_.end(), t,
                              [](std::int64_t time, const Computing& c) { return time < c.begin_ns; });
    if (next == computing_.begin()) return 0;
    const Computing& last = *(next - 1);
    return last.before_ns + std::min(t, last.end_ns) - last.begin_ns;
  }

  // Returns the time in [a, b) in which no section ran. Caches the last interval, which is asked for several times in a
  // row.
  std::int64_t exposed_of(std::int64_t a, std::int64_t b) {
    if (a != asked_.begin_ns || b != asked_.end_ns)
      asked_ = {a, b, b - a - (computing_before(b) - computing_before(a))};
    return asked_.exposed_ns;
  }

  void count_kind(const EventInterval& interval, const WorkRole& role, std::span<KindTime> kinds) {
    KindTime& time = kinds[role.kind];
    ++time.events;
    std::int64_t& until = kind_end_[role.kind];
    if (interval.end_ns <= until) return;
    within_steps(first_span_, std::max(interval.begin_ns, until), interval.end_ns,
                 [&](std::size_t, std::int64_t a, std::int64_t b) { time.time_ns += b - a; });
    until = interval.end_ns;
  }

  // Adds the interval to the exposed time of reasons[0 .. n] together. Subtracting the time of reasons[0 .. n - 1]
  // leaves what n alone explains, so a few growing unions count every nanosecond once.
  void count_waiting(const EventInterval& interval, const WorkRole& role) {
    if (role.is_comm) {
      const auto axis = static_cast<std::size_t>(role.axis);
      std::int64_t& until = axis_end_[axis];
      if (interval.end_ns > until) {
        const std::int64_t begin = std::max(interval.begin_ns, until);
        within_steps(first_span_, begin, interval.end_ns, [&](std::size_t s, std::int64_t a, std::int64_t b) {
          AxisTime& time = steps[s].axes[axis];
          time.total_ns += b - a;
          time.exposed_ns += exposed_of(a, b);
        });
        if (role.axis == GroupAxis::tp) mark_tp(begin, interval.end_ns);
        until = interval.end_ns;
      }
    }
    for (std::size_t reason = role.reason; reason < kReasons; ++reason) {
      std::int64_t& until = reason_end_[reason];
      if (interval.end_ns <= until) return;  // and the later ones reach no less far
      within_steps(first_span_, std::max(interval.begin_ns, until), interval.end_ns,
                   [&](std::size_t s, std::int64_t a, std::int64_t b) { exposed_[s][reason] += exposed_of(a, b); });
      until = interval.end_ns;
    }
  }

  void mark_tp(std::int64_t begin, std::int64_t end) {
    for (std::size_t i = first_after(computing_, first_computing_, begin);
         i < computing_.size() && computing_[i].begin_ns < end; ++i) {
      const std::int64_t in_it = std::min(end, computing_[i].end_ns) - std::max(begin, computing_[i].begin_ns);
      computing_[i].tp_ns += std::max<std::int64_t>(in_it, 0);
    }
  }

  void close() {
    std::vector<std::int64_t> in_sections(steps.size());
    for (const Computing& computing : computing_) {
      StepTime& step = steps[computing.span];
      const std::int64_t length = computing.end_ns - computing.begin_ns;
      const std::int64_t by_tp = std::min(computing.stalled_ns, computing.tp_ns);
      AxisTime& tp = step.axes[static_cast<std::size_t>(GroupAxis::tp)];
      in_sections[computing.span] += length;
      step.busy_ns += length - computing.stalled_ns;
      step.stalled_ns += computing.stalled_ns;
      step.stalled_other_ns += computing.stalled_ns - by_tp;
      tp.exposed_ns += by_tp;
      tp.waiting_ns += by_tp;
    }
    for (std::size_t s = 0; s < steps.size(); ++s) {
      StepTime& step = steps[s];
      std::int64_t shown = 0;
      const auto part = [&](std::size_t reason) {
        const std::int64_t alone = exposed_[s][reason] - shown;
        shown = exposed_[s][reason];
        return alone;
      };
      for (std::size_t i = 0; i < kAxes; ++i) step.axes[static_cast<std::size_t>(kWaitOrder[i])].waiting_ns += part(i);
      step.copy_ns = part(kCopy);
      step.save_ns = part(kSave);
      step.data_wait_ns = part(kDataWait);
      step.idle_ns = step.length_ns - in_sections[s] - shown;
    }
  }

  const RankTrace& rank_;
  const std::vector<EventInfo>& infos_;
  const std::vector<WorkRole>& roles_;
  std::vector<StepSpan> spans_;
  std::vector<EventInterval> intervals_;              // by begin
  std::vector<Computing> computing_;                  // by begin, none overlapping another
  std::size_t first_span_ = 0, first_computing_ = 0;  // that end after the interval in hand begins
  std::vector<std::int64_t> kind_end_;                // until where a kind is united
  std::array<std::int64_t, trace::kGroupAxes> axis_end_ = filled<trace::kGroupAxes>();
  std::array<std::int64_t, kReasons> reason_end_ = filled<kReasons>();
  std::vector<std::array<std::int64_t, kReasons>> exposed_;  // [step]: while no section ran, by reasons 0 .. n together

  struct Asked {
    std::int64_t begin_ns = 0, end_ns = 0, exposed_ns = 0;
  };
  Asked asked_;

  template <std::size_t kCount>
  static std::array<std::int64_t, kCount> filled() {
    std::array<std::int64_t, kCount> ends;
    ends.fill(kBefore);
    return ends;
  }
};

}  // namespace

Breakdown break_down(const RunTrace& trace) {
  Breakdown breakdown;
  const std::vector<WorkRole> all_roles = roles(trace, breakdown.kinds);
  const std::size_t kinds = breakdown.kinds.size();
  breakdown.kind_times.resize(trace.ranks.size() * kinds);
  std::vector<std::vector<StepTime>> steps(trace.ranks.size());
  in_blocks(trace.ranks.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) {
      Sweep sweep(trace.ranks[r], trace.infos, all_roles, kinds);
      sweep.run(std::span(breakdown.kind_times).subspan(r * kinds, kinds));
      steps[r] = std::move(sweep.steps);
    }
  });
  breakdown.first_of.push_back(0);
  for (const std::vector<StepTime>& of_rank : steps) {
    breakdown.steps.insert(breakdown.steps.end(), of_rank.begin(), of_rank.end());
    breakdown.first_of.push_back(breakdown.steps.size());
  }
  return breakdown;
}

StepTime sum_of(std::span<const StepTime> steps) {
  StepTime sum;
  for (const StepTime& step : steps) {
    sum.length_ns += step.length_ns;
    sum.busy_ns += step.busy_ns;
    sum.stalled_ns += step.stalled_ns;
    sum.stalled_other_ns += step.stalled_other_ns;
    sum.copy_ns += step.copy_ns;
    sum.save_ns += step.save_ns;
    sum.data_wait_ns += step.data_wait_ns;
    sum.idle_ns += step.idle_ns;
    for (std::size_t a = 0; a < sum.axes.size(); ++a) {
      sum.axes[a].total_ns += step.axes[a].total_ns;
      sum.axes[a].exposed_ns += step.axes[a].exposed_ns;
      sum.axes[a].waiting_ns += step.axes[a].waiting_ns;
    }
  }
  return sum;
}

}  // namespace ms::tracepp
