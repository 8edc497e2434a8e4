// Medians everywhere: an operation whose end was noticed late on one rank must not move a clock.
#include "tracepp/clock/ends.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <span>

namespace ms::tracepp {
namespace {

constexpr std::size_t kMembers = 2'000'000;                          // that are looked at
constexpr std::size_t kFewestOperations = 8, kMostOperations = 256;  // of a group
constexpr std::size_t kStretches = 32;                               // of the run, for lines through a clock's ends
constexpr double kEndFloorNs = 1000;  // below, ends say nothing: who notices first is chance
constexpr int kMostSweeps = 4;        // a clock that moves moves the middles of its operations

bool ends_together(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
    case Kind::reduce_scatter:
    case Kind::all_gather:
    case Kind::barrier:
    case Kind::all_to_all:
    case Kind::send:
    case Kind::recv: return true;
    default: return false;
  }
}

template <class T>
T upper_median(std::vector<T>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// How far an end lies behind the middle one of its operation.
struct Late {
  std::size_t clock = 0;
  std::int64_t own_ns = 0;  // when, on the end's clock
  std::int64_t late_ns = 0;
};
std::vector<Late> lateness(const SampledEnds& ends, const std::vector<FittedClock>& clocks) {
  std::vector<Late> result;
  result.reserve(ends.ends.size());
  std::vector<std::int64_t> times;
  for (std::size_t o = 0; o < ends.operations(); ++o) {
    const std::size_t first = ends.first_of[o], end = ends.first_of[o + 1];
    times.clear();
    for (std::size_t i = first; i < end; ++i) times.push_back(clocks[ends.ends[i].clock].to_root(ends.ends[i].end_ns));
    std::vector<std::int64_t> sorted = times;
    std::int64_t middle = upper_median(sorted);
    if (sorted.size() % 2 == 0) {
      const auto half = static_cast<std::ptrdiff_t>(sorted.size() / 2);
      const std::int64_t below = *std::max_element(sorted.begin(), sorted.begin() + half);
      middle = below + (middle - below) / 2;
    }
    for (std::size_t i = first; i < end; ++i)
      result.push_back({ends.ends[i].clock, ends.ends[i].end_ns, times[i - first] - middle});
  }
  return result;
}

// A line through lateness, and how far from it a value is as a rule.
struct LateLine {
  double at = 0, late = 0, drift = 0, deviation = HUGE_VAL;
  double operator()(double t) const { return late + drift * (t - at); }
};
LateLine line_through(std::span<const Late> late) {  // by time
  LateLine line;
  if (late.empty()) return line;
  const std::int64_t zero = late.front().own_ns;
  struct Point {
    double x, y;
  };
  std::vector<Point> points;
  const std::size_t stretches = std::min(kStretches, late.size());
  std::vector<double> values, others;
  for (std::size_t s = 0; s < stretches; ++s) {
    values.clear();
    others.clear();
    for (std::size_t i = s * late.size() / stretches; i < (s + 1) * late.size() / stretches; ++i) {
      values.push_back(static_cast<double>(late[i].late_ns));
      others.push_back(static_cast<double>(late[i].own_ns - zero));
    }
    points.push_back({upper_median(others), upper_median(values)});
  }
  values.clear();
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t k = i + 1; k < points.size(); ++k) {
      if (points[k].x > points[i].x) values.push_back((points[k].y - points[i].y) / (points[k].x - points[i].x));
    }
  }
  line.drift = values.empty() ? 0 : upper_median(values);
  line.at = static_cast<double>(zero);
  values.clear();
  for (const Point& p : points) values.push_back(p.y - line.drift * p.x);
  line.late = upper_median(values);
  values.clear();
  for (const Late& l : late) {
    const double x = static_cast<double>(l.own_ns - zero);
    values.push_back(std::abs(static_cast<double>(l.late_ns) - line.late - line.drift * x));
  }
  line.deviation = std::max(kEndFloorNs, 1.5 * upper_median(values));
  return line;
}

// When the longest gap between times of these events begins, within (after, before).
std::int64_t longest_gap(const std::vector<Event>& events, std::int64_t after, std::int64_t before) {
  std::vector<std::int64_t> times{after, before};
  for (const Event& event : events) {
    for (const std::int64_t t : {event.begin_ns, event.end_ns()})
      if (event.state != State::issued && t > after && t < before) times.push_back(t);
  }
  std::ranges::sort(times);
  std::size_t longest = 0;
  for (std::size_t i = 1; i + 1 < times.size(); ++i)
    if (times[i + 1] - times[i] > times[longest + 1] - times[longest]) longest = i;
  return std::midpoint(times[longest], times[longest + 1]);
}

// Between the samples around the moment when a clock was set, the ends before it fit the line before, and those after
// it the line after; between two ends, it was in the longest gap that a rank's events show there.
void place_jumps(FittedClock& clock, std::span<const Late> late, const std::vector<Event>& events) {
  const std::vector<ClockMap::Piece> pieces = clock.to_root.pieces();
  for (std::size_t p = 1; p < pieces.size(); ++p) {
    const ClockMap::Piece& piece = pieces[p];
    if (piece.set_after_ns >= piece.set_before_ns) continue;
    const auto first = std::ranges::lower_bound(late, piece.set_after_ns, {}, &Late::own_ns);
    const auto end = std::ranges::upper_bound(first, late.end(), piece.set_before_ns, {}, &Late::own_ns);
    // How much worse it is that the new line holds from an end on than that it holds from `end` on.
    double cost = 0, best = 0;
    auto begin = end;
    for (auto at = end; at != first;) {
      --at;
      const auto off = [&](const ClockMap::Piece& as) {
        const std::int64_t shift = as.shift_ns + std::llround(as.drift * static_cast<double>(at->own_ns - as.at_ns));
        return std::abs(static_cast<double>(at->late_ns - clock.to_root.shift(at->own_ns) + shift));
      };
      cost += off(piece) - off(pieces[p - 1]);
      if (cost < best) best = cost, begin = at;
    }
    const std::int64_t after = begin == first ? piece.set_after_ns : (begin - 1)->own_ns;
    const std::int64_t before = begin == end ? piece.set_before_ns : begin->own_ns;
    const std::int64_t from = longest_gap(events, after, before);
    if (p == 1 || from > clock.to_root.pieces()[p - 1].from_ns) clock.to_root.begin_piece_at(p, from);
  }
}

// The lateness of each clock, by time; in its operations on many clocks, where it has such: the middle of two clocks is
// as wrong as they are.
struct LateOf {
  std::vector<Late> late;
  std::vector<std::size_t> first_of;
  std::span<const Late> of(std::size_t clock) const {
    return std::span(late).subspan(first_of[clock], first_of[clock + 1] - first_of[clock]);
  }
};
LateOf lateness_by_clock(const SampledEnds& ends, const std::vector<FittedClock>& clocks) {
  const std::vector<Late> all = lateness(ends, clocks);
  std::vector<std::size_t> most(clocks.size());  // clocks of one operation
  const auto each = [&](auto&& f) {
    for (std::size_t o = 0; o < ends.operations(); ++o)
      for (std::size_t i = ends.first_of[o]; i < ends.first_of[o + 1]; ++i)
        f(all[i], ends.first_of[o + 1] - ends.first_of[o]);
  };
  each([&](const Late& l, std::size_t size) { most[l.clock] = std::max(most[l.clock], size); });
  LateOf result;
  result.first_of.resize(clocks.size() + 1);
  each([&](const Late& l, std::size_t size) { result.first_of[l.clock + 1] += 2 * size > most[l.clock]; });
  for (std::size_t c = 0; c < clocks.size(); ++c) result.first_of[c + 1] += result.first_of[c];
  result.late.resize(result.first_of.back());
  std::vector<std::size_t> next(result.first_of.begin(), result.first_of.end() - 1);
  each([&](const Late& l, std::size_t size) {
    if (2 * size > most[l.clock]) result.late[next[l.clock]++] = l;
  });
  for (std::size_t c = 0; c < clocks.size(); ++c)
    std::ranges::sort(std::span(result.late).subspan(result.first_of[c], result.first_of[c + 1] - result.first_of[c]),
                      {}, &Late::own_ns);
  return result;
}

}  // namespace

SampledEnds sample_ends(const RunTrace& trace, const Matches& matches, const RunClocks& clocks) {
  SampledEnds sample;
  sample.first_of.push_back(0);
  // Groups on more than one clock, as one operation shows.
  std::vector<std::int32_t> groups;
  std::size_t members = 0;
  for (std::size_t g = 0; g < trace.groups.size(); ++g) {
    const auto group = static_cast<std::int32_t>(g);
    const Matches::Range range = matches.of_group(group);
    if (range.first == range.end) continue;
    const auto middle = matches.members_of(range.first + (range.end - range.first) / 2);
    const std::size_t clock = clocks.of_rank[middle.front().rank];
    if (std::ranges::all_of(middle, [&](const Member& m) { return clocks.of_rank[m.rank] == clock; })) continue;
    groups.push_back(group);
    members += middle.size();
  }
  if (members == 0) return sample;
  const std::size_t wanted = std::clamp(kMembers / members, kFewestOperations, kMostOperations);
  std::vector<End> here;
  std::vector<std::size_t> place(clocks.clocks.size());  // in `here`, where that is this clock
  for (const std::int32_t group : groups) {
    const Matches::Range range = matches.of_group(group);
    const std::size_t count = range.end - range.first, take = std::min(count, wanted);
    for (std::size_t i = 0; i < take; ++i) {
      here.clear();
      for (const Member& member : matches.members_of(range.first + i * count / take)) {
        const Event& event = event_of(trace, member);
        if (event.state != State::ended || !ends_together(trace.info(event).kind)) continue;
        const std::size_t clock = clocks.of_rank[member.rank];
        if (std::size_t& at = place[clock]; at < here.size() && here[at].clock == clock) {
          here[at].end_ns = std::min(here[at].end_ns, event.end_ns());
          here[at].duration_ns = std::min(here[at].duration_ns, event.duration_ns);
        } else {
          at = here.size();
          here.push_back({clock, event.end_ns(), event.duration_ns});
        }
      }
      if (here.size() < 2) continue;
      sample.ends.insert(sample.ends.end(), here.begin(), here.end());
      sample.first_of.push_back(sample.ends.size());
    }
  }
  return sample;
}

std::vector<ClockLink> end_links(const SampledEnds& ends, const std::vector<char>& wanted) {
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> known;
  std::vector<ClockLink> links;
  for (std::size_t o = 0; o < ends.operations(); ++o) {
    const End& first = ends.ends[ends.first_of[o]];
    for (std::size_t i = ends.first_of[o] + 1; i < ends.first_of[o + 1]; ++i) {
      const End& end = ends.ends[i];
      if (end.clock == first.clock || (!wanted[end.clock] && !wanted[first.clock])) continue;
      const auto [place, is_new] = known.try_emplace({first.clock, end.clock}, links.size());
      if (is_new) links.push_back({first.clock, end.clock, ClockSource::collectives, {}, 0});
      // Each end comes after the other's begin: the two clocks cannot differ by more than this from what the ends say.
      const std::int64_t bound = std::max(first.duration_ns, end.duration_ns) + 1;
      links[place->second].samples.push_back({first.end_ns, end.end_ns, bound, 0});
    }
  }
  return links;
}

EndSpread spread_of(const SampledEnds& ends, const std::vector<FittedClock>& clocks) {
  std::vector<std::int64_t> off;
  for (const Late& late : lateness(ends, clocks)) off.push_back(std::abs(late.late_ns));
  if (off.empty()) return {};
  const auto quantile = [&](double share) {
    const auto at = off.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(off.size() - 1));
    std::ranges::nth_element(off, at);
    return *at;
  };
  return {quantile(0.5), quantile(0.99), *std::ranges::max_element(off), off.size()};
}

void refine(const RunTrace& trace, const RunClocks& of, const SampledEnds& ends, std::vector<FittedClock>& clocks) {
  double moved_ns = kEndFloorNs;
  std::vector<double> moved(clocks.size());  // in all
  const auto root_clock = std::ranges::find(clocks, ClockSource::root, &FittedClock::source) - clocks.begin();
  for (int sweep = 0; sweep < kMostSweeps && moved_ns >= kEndFloorNs; ++sweep) {
    moved_ns = 0;
    const LateOf late = lateness_by_clock(ends, clocks);
    const auto root_ends = late.of(static_cast<std::size_t>(root_clock));
    const LateLine root = line_through(root_ends);
    for (std::size_t c = 0; c < clocks.size(); ++c) {
      FittedClock& clock = clocks[c];
      if (clock.source != ClockSource::probes && clock.source != ClockSource::collectives) continue;
      const auto own = late.of(c);
      if (own.size() < kFewestOperations) continue;
      if (sweep == 0) place_jumps(clock, own, trace.ranks[of.clocks[c].first_rank].events);
      const LateLine line = line_through(own);
      // A line through what is corrected at the first end and at the last.
      const auto correction = [&](std::int64_t t) {
        double wrong = line(static_cast<double>(t));
        if (!root_ends.empty()) wrong -= root(static_cast<double>(clock.to_root(t)));
        const double allowed = std::max(0.0, clock.bound_at(t) - moved[c]), known = clock.deviation_at(t);
        const double weight = known * known / (known * known + line.deviation * line.deviation);
        return std::clamp(-wrong * weight, -allowed, allowed);
      };
      const std::int64_t begin = own.front().own_ns, end = own.back().own_ns;
      const double at_begin = correction(begin), at_end = correction(end);
      const double drift = end > begin ? (at_end - at_begin) / static_cast<double>(end - begin) : 0;
      clock.to_root.add(begin, at_begin, drift);
      const double most = std::max(std::abs(at_begin), std::abs(at_end));
      moved[c] += most;
      moved_ns = std::max(moved_ns, most);
    }
  }
  // The samples bound where a clock was before it was moved.
  for (std::size_t c = 0; c < clocks.size(); ++c) clocks[c].bound_ns += moved[c];
}

}  // namespace ms::tracepp
