// Implements fit.h's clocks of a run, links of probes, and the tree along which all clocks map to one of them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <queue>
#include <ranges>
#include <tuple>

#include "tracepp/clock/fit.h"

namespace ms::tracepp {
namespace {

constexpr std::int64_t kMaxTime = std::int64_t{1} << 61;  // differences of such times fit
constexpr std::int64_t kMaxRoundTripNs = 10'000'000'000;
constexpr std::int64_t kSameBootNs = 1'000'000'000;  // how far the wall clock may be set while a run starts
constexpr double kSureNs = 200e3;                    // that a link may be off where its samples do not reach

bool is_time(std::int64_t t) { return t > -kMaxTime && t < kMaxTime; }

// Returns the first clock; if no link leads to it, the first one of those with the most links.
std::size_t root_of(std::size_t clocks, const std::vector<ClockLink>& sure, const std::vector<ClockLink>& others) {
  std::vector<std::size_t> links(clocks);
  for (const std::vector<ClockLink>* const of : {&sure, &others}) {
    for (const ClockLink& link : *of) {
      ++links[link.a];
      ++links[link.b];
    }
  }
  return links[0] > 0 ? 0 : static_cast<std::size_t>(std::ranges::max_element(links) - links.begin());
}

}  // namespace

RunClocks clocks_of(const RunTrace& trace) {
  RunClocks result;
  std::map<std::string_view, std::vector<std::size_t>> by_host;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    const RankTrace& rank = trace.ranks[r];
    const bool has_wall =
        (rank.clock_ns != 0 || rank.realtime_ns != 0) && is_time(rank.clock_ns) && is_time(rank.realtime_ns);
    const std::int64_t wall = has_wall ? rank.realtime_ns - rank.clock_ns : 0;
    std::size_t clock = result.clocks.size();
    std::vector<std::size_t>& here = by_host[rank.host];
    for (const std::size_t c : here) {
      const RunClocks::Clock& other = result.clocks[c];
      if (!rank.host.empty() && (!has_wall || !other.has_wall || std::abs(other.wall_ns - wall) < kSameBootNs))
        clock = c;
      if (clock == c) break;
    }
    if (clock == result.clocks.size()) {
      here.push_back(clock);
      result.clocks.push_back({.host = rank.host, .first_rank = r});
    }
    RunClocks::Clock& of = result.clocks[clock];
    ++of.ranks;
    if (!of.has_wall && has_wall) of.has_wall = true, of.wall_ns = wall;
    result.of_rank.push_back(clock);
  }
  return result;
}

ProbeLinks probe_links(const RunTrace& trace, const RunClocks& clocks) {
  ProbeLinks result;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> known;
  std::vector<ClockLink> links;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r) {
    for (const Probe& probe : trace.ranks[r].probes) {
      const RankTrace* peer = trace.rank(probe.peer);
      const bool sound = is_time(probe.asked_ns) && is_time(probe.answered_ns) && is_time(probe.peer_heard_ns) &&
                         is_time(probe.peer_replied_ns) && probe.answered_ns >= probe.asked_ns &&
                         probe.peer_replied_ns >= probe.peer_heard_ns;
      const std::int64_t trip =
          sound ? (probe.answered_ns - probe.asked_ns) - (probe.peer_replied_ns - probe.peer_heard_ns) : -1;
      if (peer == nullptr || trip < 0 || trip > kMaxRoundTripNs || probe.round < 0) {
        ++result.bad_probes;
        continue;
      }
      const std::size_t a = clocks.of_rank[r], b = clocks.of_rank[static_cast<std::size_t>(peer - trace.ranks.data())];
      if (a == b) continue;
      const auto [place, is_new] = known.try_emplace({a, b}, links.size());
      if (is_new) links.push_back({a, b, ClockSource::probes, {}, 0});
      links[place->second].samples.push_back({std::midpoint(probe.asked_ns, probe.answered_ns),
                                              std::midpoint(probe.peer_heard_ns, probe.peer_replied_ns), trip / 2 + 1,
                                              static_cast<std::uint32_t>(probe.round)});
    }
  }
  for (ClockLink& link : links) {
    const auto [first, last] = std::ranges::minmax(link.samples | std::views::transform(&ClockSample::a_ns));
    const std::vector<Event>& events = trace.ranks[clocks.clocks[link.a].first_rank].events;
    if (!events.empty()) {
      const RankTrace& rank = trace.ranks[clocks.clocks[link.a].first_rank];
      const std::int64_t to_ns = std::max(events.back().end_ns(), rank.last_flush_ns);
      const std::int64_t outside = std::max({first - events.front().begin_ns, to_ns - last, std::int64_t{0}});
      link.beyond_ns = static_cast<double>(outside) * drift_error(link);
    }
    (link.beyond_ns <= kSureNs ? result.sure : result.others).push_back(std::move(link));
  }
  return result;
}

std::vector<FittedClock> fit_clocks(const RunClocks& clocks, const std::vector<ClockLink>& sure,
                                    const std::vector<ClockLink>& others) {
  const std::size_t n = clocks.clocks.size();
  std::vector<FittedClock> fitted(n);
  if (n == 0) return fitted;
  const std::size_t root = root_of(n, sure, others);
  fitted[root].source = ClockSource::root;
  std::vector<std::vector<const ClockLink*>> at(n);
  std::map<const ClockLink*, double> errors;
  const auto add = [&](const std::vector<ClockLink>& links) {
    for (const ClockLink& link : links) {
      errors[&link] = link.error_ns();
      at[link.a].push_back(&link);
      at[link.b].push_back(&link);
    }
  };
  // Dijkstra; a clock that is reached stays as it is.
  const auto spread = [&] {
    using Way = std::tuple<double, std::size_t, const ClockLink*>;  // error, clock, link that leads there
    std::priority_queue<Way, std::vector<Way>, std::greater<>> ways;
    const auto go_on = [&](std::size_t c) {
      for (const ClockLink* link : at[c]) {
        const std::size_t to = link->a == c ? link->b : link->a;
        if (fitted[to].source == ClockSource::none) ways.push({fitted[c].bound_ns + errors[link], to, link});
      }
    };
    for (std::size_t c = 0; c < n; ++c) {
      if (fitted[c].source != ClockSource::none) go_on(c);
    }
    while (!ways.empty()) {
      const auto [error, to, link] = ways.top();
      ways.pop();
      if (fitted[to].source != ClockSource::none) continue;
      const FittedClock& parent = fitted[link->a == to ? link->b : link->a];
      FittedClock clock = fit_link(*link, to);
      clock.to_root = clock.to_root.then(parent.to_root);
      clock.bound_ns += parent.bound_ns;
      clock.deviation_ns = std::hypot(clock.deviation_ns, parent.deviation_ns);
      clock.drift_error += parent.drift_error;
      if (parent.source == ClockSource::collectives) clock.source = ClockSource::collectives;
      fitted[to] = std::move(clock);
      go_on(to);
    }
  };
  add(sure);
  spread();
  add(others);
  spread();
  for (std::size_t c = 0; c < n; ++c) {
    if (fitted[c].source != ClockSource::none || !clocks.clocks[c].has_wall || !clocks.clocks[root].has_wall) continue;
    fitted[c].source = ClockSource::wall;
    const std::int64_t shift = clocks.clocks[c].wall_ns - clocks.clocks[root].wall_ns;
    fitted[c].to_root = ClockMap(std::vector<ClockMap::Piece>{{.shift_ns = shift}});
  }
  return fitted;
}

}  // namespace ms::tracepp
