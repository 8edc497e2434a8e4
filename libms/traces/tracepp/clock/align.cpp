// Fits, refines, shifts and repairs clocks, and reports the result.
#include "tracepp/clock/align.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

namespace ms::tracepp {
namespace {

constexpr std::int64_t kTrustedNs = 1'000'000;      // a larger repair would hide that the clocks are wrong
constexpr std::size_t kEventsForThreads = 1 << 16;  // below, starting a thread costs more than it saves

void shift_rank(RankTrace& rank, const ClockMap& map) {
  for (Event& event : rank.events) {
    if (event.state == State::issued) continue;
    const std::int64_t begin = map(event.begin_ns);
    if (event.state == State::ended) event.duration_ns = std::max(std::int64_t{0}, map(event.end_ns()) - begin);
    event.begin_ns = begin;
  }
  for (StepSum& sum : rank.sums) {
    sum.begin_ns = map(sum.begin_ns);
    sum.end_ns = std::max(sum.begin_ns, map(sum.end_ns));
  }
  rank.last_flush_ns = map(rank.last_flush_ns);
  if (rank.clock_ns != 0 || rank.realtime_ns != 0) rank.clock_ns = map(rank.clock_ns);
}

void shift_all(RunTrace& trace, const std::map<int, RankClock>& clocks) {
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t r = next++; r < trace.ranks.size(); r = next++) {
      const ClockMap& map = clocks.at(trace.ranks[r].rank).to_run;
      if (!map.is_identity()) shift_rank(trace.ranks[r], map);
    }
  };
  std::jthread other;
  if (trace.event_count() >= kEventsForThreads) other = std::jthread(work);
  work();
}

std::vector<FittedClock> by_wall(const RunClocks& clocks) { return fit_clocks(clocks, {}, {}); }

std::string ordinal(std::size_t number) {
  const std::size_t last = number % 10;
  const bool is_teen = number / 10 % 10 == 1;
  return fmt::format("{}{}", number,
                     is_teen || last == 0 || last > 3 ? "th"
                     : last == 1                      ? "st"
                     : last == 2                      ? "nd"
                                                      : "rd");
}

std::string doubt_of(const RunClocks& clocks, const std::vector<FittedClock>& fitted, const Repair& repair) {
  std::size_t wall = 0, none = 0;
  const RunClocks::Clock* example = nullptr;
  for (std::size_t c = 0; c < fitted.size(); ++c) {
    if (fitted[c].source != ClockSource::wall && fitted[c].source != ClockSource::none) continue;
    ++(fitted[c].source == ClockSource::wall ? wall : none);
    if (example == nullptr) example = &clocks.clocks[c];
  }
  const auto name = [&] {
    return example->host.empty() ? fmt::format("that of the {} rank traced", ordinal(example->first_rank + 1))
                                 : example->host;
  };
  if (none > 0)
    return fmt::format("nothing ties {} of {} clocks to the others, among them {}", none + wall, fitted.size(), name());
  if (wall > 0)
    return fmt::format("only the wall clock ties {} of {} clocks to the others, among them {}", wall, fitted.size(),
                       name());
  if (repair.violated_after > 0)
    return fmt::format("{} of {} operations still end before the begin of what they waited for", repair.violated_after,
                       repair.orders);
  if (repair.largest_ns > kTrustedNs)
    return fmt::format("an operation had to be moved by {:.1f} ms to end after what it waited for began",
                       static_cast<double>(repair.largest_ns) * 1e-6);
  return "";
}

}  // namespace

Alignment align(RunTrace& trace, const Matches& matches) {
  Alignment result;
  const RunClocks clocks = clocks_of(trace);
  std::vector<FittedClock> fitted;
  if (clocks.clocks.size() > 1) {
    const SampledEnds ends = sample_ends(trace, matches, clocks);
    const ProbeLinks probes = probe_links(trace, clocks);
    result.bad_probes = probes.bad_probes;
    fitted = fit_clocks(clocks, probes.sure, {});
    std::vector<char> unknown;
    for (const FittedClock& clock : fitted)
      unknown.push_back(static_cast<char>(clock.source == ClockSource::wall || clock.source == ClockSource::none));
    if (std::ranges::count(unknown, 1) > 0) {
      std::vector<ClockLink> others = end_links(ends, unknown);
      others.insert(others.end(), probes.others.begin(), probes.others.end());
      fitted = fit_clocks(clocks, probes.sure, others);
    }
    result.before = spread_of(ends, by_wall(clocks));
    refine(trace, clocks, ends, fitted);
    result.after = spread_of(ends, fitted);
  } else {
    fitted = by_wall(clocks);
  }
  for (std::size_t c = 0; c < fitted.size(); ++c) {
    const RunClocks::Clock& clock = clocks.clocks[c];
    const FittedClock& fit = fitted[c];
    const RankTrace& rank = trace.ranks[clock.first_rank];
    const std::int64_t middle = rank.events.empty() ? rank.clock_ns : rank.events[rank.events.size() / 2].begin_ns;
    result.hosts.push_back({.host = clock.host,
                            .first_rank = rank.rank,
                            .ranks = clock.ranks,
                            .source = fit.source,
                            .offset_ns = fit.to_root.shift(middle),
                            .drift_ppm = fit.to_root.drift(middle) * 1e6,
                            .bound_ns = std::llround(fit.bound_at(middle)),
                            .expected_ns = std::llround(fit.deviation_at(middle))});
  }
  for (std::size_t r = 0; r < trace.ranks.size(); ++r)
    result.clocks[trace.ranks[r].rank] = {.clock = clocks.of_rank[r], .to_run = fitted[clocks.of_rank[r]].to_root};
  if (clocks.clocks.size() > 1) {
    shift_all(trace, result.clocks);
    result.repair = repair_orders(trace, matches, clocks.of_rank);
  }
  result.doubt = doubt_of(clocks, fitted, result.repair);
  result.trusted = result.doubt.empty();
  return result;
}

void align_like(RunTrace& some, const Alignment& aligned) {
  if (aligned.hosts.size() < 2) return;
  shift_all(some, aligned.clocks);
  std::vector<std::size_t> clock_of;
  for (const RankTrace& rank : some.ranks) clock_of.push_back(aligned.clocks.at(rank.rank).clock);
  repair_orders(some, match_operations(some), clock_of);
}

}  // namespace ms::tracepp
