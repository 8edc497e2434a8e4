#include "tracepp/steps/host_threads.h"

#include <algorithm>
#include <array>

namespace ms::tracepp {

std::vector<HostRole> host_roles(const RunTrace& trace) {
  std::vector<HostRole> roles;
  roles.reserve(trace.infos.size());
  for (const EventInfo& info : trace.infos) roles.push_back(host_role(info, trace.strings.text(info.name)));
  return roles;
}

HostThreads::HostThreads(const RunTrace& trace, const std::vector<HostRole>& roles, const RankTrace& rank)
    : trace_(trace), roles_(roles), rank_(rank) {
  threads_.resize(std::max<std::size_t>(rank.lanes.size(), 256));
  std::vector<std::size_t> weight(threads_.size());
  for (std::uint32_t i = 0; i < rank.events.size(); ++i) {
    const Event& event = rank.events[i];
    const EventInfo& info = trace.info(event);
    has_device_ = has_device_ || is_device_work(info);
    if (event.state != State::ended) continue;
    if (info.kind == Kind::step) weight[event.lane] += rank.events.size();
    if (info.kind == Kind::step || info.origin < Origin::op || trace::is_comm(info.kind)) continue;
    ++weight[event.lane];
    threads_[event.lane].events.push_back(i);
  }
  main_ = static_cast<std::size_t>(std::ranges::max_element(weight) - weight.begin());
  blocks_.resize(rank.events.size());
  std::size_t backwards = 0;
  for (const Launch& launch : rank.launches) {
    const Event& work = rank.events[launch.event];
    const EventInfo& info = trace.info(work);
    if (work.begin_ns + kHostClockError_ns < rank.events[launch.call].begin_ns) ++backwards;
    if (info.origin == Origin::copy && trace.strings.text(info.name).find("Pageable") != std::string_view::npos)
      blocks_[launch.call] = true;
  }
  constexpr double kMostBackwards = 0.01;
  clocks_agree_ = static_cast<double>(backwards) <= kMostBackwards * static_cast<double>(rank.launches.size());
  around_.assign(rank.events.size(), kAbsentEvent);
  for (Thread& thread : threads_) nest(thread);
}

void HostThreads::nest(Thread& thread) {
  std::ranges::stable_sort(thread.events, [&](std::uint32_t a, std::uint32_t b) {
    const Event &x = rank_.events[a], &y = rank_.events[b];
    return x.begin_ns != y.begin_ns ? x.begin_ns < y.begin_ns : x.duration_ns > y.duration_ns;
  });
  std::uint32_t open = kAbsentEvent;
  for (const std::uint32_t at : thread.events) {
    while (open != kAbsentEvent && rank_.events[open].end_ns() <= rank_.events[at].begin_ns) open = around_[open];
    around_[at] = open;
    open = at;
    if (role(at) == HostRole::synchronises) thread.waits.push_back(at);
  }
}

std::size_t HostThreads::begun(const Thread& thread, std::int64_t time_ns) const {
  const auto begin_ns = [&](std::uint32_t event) { return rank_.events[event].begin_ns; };
  std::size_t& count = thread.begun;  // most searches repeat the time of the one before
  const bool has_begun = count == 0 || begin_ns(thread.events[count - 1]) <= time_ns;
  if (!has_begun || (count < thread.events.size() && begin_ns(thread.events[count]) <= time_ns)) {
    const auto later = std::ranges::upper_bound(thread.events, time_ns, {}, begin_ns);
    count = static_cast<std::size_t>(later - thread.events.begin());
  }
  return count;
}

std::uint32_t HostThreads::innermost(std::size_t lane, std::int64_t time_ns) const {
  const std::size_t count = begun(threads_[lane], time_ns);
  std::uint32_t open = count == 0 ? kAbsentEvent : threads_[lane].events[count - 1];
  while (open != kAbsentEvent && rank_.events[open].end_ns() <= time_ns) open = around_[open];
  return open;
}

std::int64_t HostThreads::next_change(std::size_t lane, std::int64_t time_ns) const {
  const Thread& thread = threads_[lane];
  const std::size_t next = begun(thread, time_ns);
  const std::uint32_t open = innermost(lane, time_ns);
  std::int64_t change_ns = std::numeric_limits<std::int64_t>::max();
  if (open != kAbsentEvent) change_ns = rank_.events[open].end_ns();
  if (next < thread.events.size()) change_ns = std::min(change_ns, rank_.events[thread.events[next]].begin_ns);
  return change_ns;
}

std::int64_t HostThreads::last_change(std::size_t lane, std::int64_t time_ns) const {
  const std::size_t count = begun(threads_[lane], time_ns);
  std::uint32_t open = count == 0 ? kAbsentEvent : threads_[lane].events[count - 1];
  std::int64_t change_ns =
      open == kAbsentEvent ? std::numeric_limits<std::int64_t>::min() : rank_.events[open].begin_ns;
  for (; open != kAbsentEvent && rank_.events[open].end_ns() <= time_ns; open = around_[open])
    change_ns = std::max(change_ns, rank_.events[open].end_ns());
  return change_ns;
}

std::uint32_t HostThreads::newest_wait(std::size_t lane, std::int64_t time_ns) const {
  const std::vector<std::uint32_t>& waits = threads_[lane].waits;
  const auto later =
      std::ranges::upper_bound(waits, time_ns, {}, [&](std::uint32_t event) { return rank_.events[event].begin_ns; });
  return later == waits.begin() ? kAbsentEvent : *(later - 1);
}

IdlePlace HostThreads::place(std::uint32_t innermost, IdleCause otherwise) const {
  constexpr std::size_t kDeepest = 512;  // a damaged trace may have a million, one inside the other
  std::array<std::uint32_t, kDeepest> open{};
  std::size_t depth = 0;
  for (; innermost != kAbsentEvent && depth < kDeepest; innermost = around_[innermost]) open[depth++] = innermost;
  IdlePlace place{.cause = otherwise};
  while (depth > 0) {
    const std::uint32_t at = open[--depth];
    const std::uint32_t name = trace_.infos[info_of(at)].name;
    const HostRole role_here = role(at);
    if (const auto cause = cause_of(role_here)) {
      place.below = name;
      place.cause = *cause;
    } else if (role_here == HostRole::op) {
      if (place.op == 0) place.op = name;
    } else if (role_here == HostRole::call || role_here == HostRole::synchronises) {
      place.call = name;
    } else if (role_here == HostRole::around) {
      if (!is_cause(place)) place.below = name;
    } else if (role_here == HostRole::line) {
      place.line = name;
    }
  }
  return place;
}

}  // namespace ms::tracepp
