#include "tracepp/steps/device_paths.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "tracepp/parallel.h"

namespace ms::tracepp {
namespace {

// So many pieces may follow each other within no time at all: a bound for traces that make no sense.
constexpr std::size_t kMostPiecesAtOnce = 256;
// Events are stamped to the microsecond in older traces.
constexpr std::int64_t kStamp_ns = 1000;
// A host that waited for the device by a call that is not in the trace goes on so soon after it.
constexpr std::int64_t kUnrecorded_ns = 100'000;

bool is_host_comm(const EventInfo& info) { return trace::is_comm(info.kind) && info.origin == Origin::annotation; }

}  // namespace

std::string_view to_string(PathOf of) {
  constexpr std::array<std::string_view, kPathsOf> kNames{"kernel", "communication", "unsplit", "copy",
                                                          "launch", "gap",           "host",    "unknown"};
  return kNames[static_cast<std::size_t>(of)];
}

RankPaths::RankPaths(const RunTrace& trace, const std::vector<HostRole>& roles, const RankTrace& rank)
    : host(trace, roles, rank), before(rank.events.size(), kAbsentEvent), call(rank.events.size(), kAbsentEvent) {
  std::vector<std::uint32_t> newest(host.lanes(), kAbsentEvent);
  std::vector<bool> launches(host.lanes());
  for (std::uint32_t i = 0; i < rank.events.size(); ++i) {
    const Event& event = rank.events[i];
    if (event.state != State::ended) continue;
    const EventInfo& info = trace.info(event);
    if (is_device_work(info)) {
      before[i] = std::exchange(newest[event.lane], i);
      work.push_back(i);
    } else if (!host.has_device() && is_host_comm(info)) {
      comms.push_back(i);
    } else if (!host.has_device() && info.origin == Origin::op &&
               trace.strings.text(info.name).starts_with("autograd::engine")) {
      launches[event.lane] = true;
    }
  }
  if (host.clocks_agree()) {
    for (const Launch& launch : rank.launches) {
      call[launch.event] = launch.call;
      launches[rank.events[launch.call].lane] = true;
    }
  }
  launches_on.push_back(static_cast<std::uint32_t>(host.main()));
  for (std::uint32_t lane = 0; lane < launches.size(); ++lane)
    if (launches[lane] && lane != host.main() && !host.events(lane).empty()) launches_on.push_back(lane);
  for (const std::uint32_t lane : launches_on)
    waits.insert(waits.end(), host.waits(lane).begin(), host.waits(lane).end());
  for (std::vector<std::uint32_t>* list : {&work, &comms, &waits})
    std::ranges::stable_sort(*list, {}, [&](std::uint32_t i) { return rank.events[i].end_ns(); });
}

std::vector<RankPaths> lay_out_paths(const RunTrace& trace, const std::vector<HostRole>& roles) {
  const auto is_host = [](const EventInfo& info) {
    return info.origin == Origin::op || info.origin == Origin::python || info.origin == Origin::call;
  };
  if (std::ranges::none_of(trace.infos, is_host)) return {};
  std::vector<std::optional<RankPaths>> made(trace.ranks.size());
  in_blocks(trace.ranks.size(), [&](std::size_t begin, std::size_t end) {
    for (std::size_t r = begin; r < end; ++r) made[r].emplace(trace, roles, trace.ranks[r]);
  });
  std::vector<RankPaths> ranks;
  ranks.reserve(made.size());
  for (std::optional<RankPaths>& rank : made) ranks.push_back(std::move(*rank));
  return ranks;
}

std::vector<DevicePiece> PathWalk::to_end(std::uint32_t rank, std::uint32_t work, std::int64_t begin_ns,
                                          std::int64_t end_ns) {
  rank_ = rank;
  work_ = work;
  at_end_ = across_ = true;
  lane_ = here().host.main();
  now_ns_ = end_ns;
  return walk(begin_ns);
}

std::vector<DevicePiece> PathWalk::to_begin(std::uint32_t rank, std::uint32_t event_at, std::int64_t begin_ns) {
  rank_ = rank;
  lane_ = here().host.main();
  work_ = is_device_work(info(event_at)) ? event_at : kAbsentEvent;
  at_end_ = across_ = false;
  now_ns_ = event(event_at).begin_ns;
  return walk(begin_ns);
}

std::vector<DevicePiece> PathWalk::walk(std::int64_t begin_ns) {
  pieces_.clear();
  begin_ns_ = begin_ns;
  for (std::size_t at_once = 0; now_ns_ > begin_ns_ && at_once < kMostPiecesAtOnce;) {
    const std::int64_t before = now_ns_;
    if (work_ == kAbsentEvent) {
      through_host();
    } else if (!std::exchange(at_end_, false)) {
      release();
    } else if (trace::is_comm(info(work_).kind)) {
      through_comm();
    } else {
      through_work();
    }
    at_once = now_ns_ == before ? at_once + 1 : 0;
  }
  add({.of = PathOf::unknown}, begin_ns_);
  std::ranges::reverse(pieces_);
  return std::move(pieces_);
}

// From now back to a time.
void PathWalk::add(const PathWork& work, std::int64_t from_ns) {
  from_ns = std::max(from_ns, begin_ns_);
  if (from_ns >= now_ns_) return;
  if (!pieces_.empty() && pieces_.back().rank == rank_ && pieces_.back().work == work) {
    pieces_.back().begin_ns = from_ns;
  } else {
    pieces_.push_back({work, rank_, from_ns, now_ns_});
  }
  now_ns_ = from_ns;
}

void PathWalk::through_work() {
  const EventInfo& of = info(work_);
  add({.of = of.origin == Origin::copy ? PathOf::copy : PathOf::kernel, .name = of.name}, event(work_).begin_ns);
}

void PathWalk::through_comm() {
  const Event& e = event(work_);
  const EventInfo& of = info(work_);
  const std::uint32_t rank = rank_;
  Member last{rank_, work_};
  std::int64_t last_ns = e.begin_ns;
  const std::uint32_t operation = of.group >= 0 ? matches_.find(of.group, e.detail) : Matches::kNone;
  std::size_t members = 1;
  if (operation != Matches::kNone) {
    members = matches_.members_of(operation).size();
    for (const Member& member : matches_.members_of(operation)) {
      const Event& other = event_of(trace_, member);
      if (!across_ || other.state == State::issued || other.begin_ns <= last_ns) continue;
      last = member;
      last_ns = std::min(other.begin_ns, now_ns_);
    }
  }
  const bool is_split = across_ && of.group >= 0 && members > 1 &&
                        members == trace_.groups[static_cast<std::size_t>(of.group)].ranks.size();
  add({.of = is_split ? PathOf::communication : PathOf::unsplit, .name = of.name, .group = of.group}, last_ns);
  if (!is_device_work(trace_.info(event_of(trace_, last)))) {
    work_ = kAbsentEvent;
    lane_ = ranks_[last.rank].host.main();
  } else {
    work_ = last.event;
  }
  rank_ = last.rank;
  if (last.rank == rank) return;
  const auto move =
      std::ranges::find_if(moves_, [&](const PathMove& known) { return known.from == rank && known.to == last.rank; });
  PathMove& moved = move == moves_.end() ? moves_.emplace_back(PathMove{.from = rank, .to = last.rank}) : *move;
  ++moved.times;
  moved.waited_ns += last_ns - e.begin_ns;
}

// Returns the work of the device that ended last until a time, of that begun before another, besides a stream's.
std::uint32_t PathWalk::newest_work(std::int64_t time_ns, std::int64_t begun_ns, std::uint32_t besides) const {
  constexpr std::size_t kMostWorkLookedAt = 64;
  const std::vector<std::uint32_t>& work = here().work;
  const auto later = std::ranges::upper_bound(work, time_ns, {}, [&](std::uint32_t i) { return event(i).end_ns(); });
  std::size_t left = kMostWorkLookedAt;
  for (auto at = later; at != work.begin() && left > 0; --at, --left) {
    const std::uint32_t found = *(at - 1);
    if (event(found).begin_ns < begun_ns && (besides == kAbsentEvent || event(found).lane != event(besides).lane))
      return found;
  }
  return kAbsentEvent;
}

// From the begin of the device's work to what it waited for.
void PathWalk::release() {
  const std::uint32_t work = work_, before = here().before[work], call = here().call[work];
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();
  const std::int64_t before_ns = before == kAbsentEvent ? kNever : std::min(event(before).end_ns(), now_ns_);
  const std::int64_t called_ns = call == kAbsentEvent ? kNever : std::min(event(call).begin_ns, now_ns_);
  const std::int64_t free_ns = std::max(before_ns, called_ns);
  at_end_ = true;
  if (free_ns == kNever || now_ns_ - free_ns > kBetweenKernels_ns) {
    // Another stream's work that ended just before: it waited for an event.
    const std::uint32_t other = newest_work(now_ns_ + kStamp_ns, now_ns_, work);
    if (other != kAbsentEvent && event(other).end_ns() > free_ns &&
        (free_ns == kNever || now_ns_ - event(other).end_ns() <= kBetweenKernels_ns)) {
      const bool is_next = now_ns_ - event(other).end_ns() <= kBetweenKernels_ns;
      add({.of = is_next ? PathOf::gap : PathOf::unknown,
           .place = {.cause = is_next ? IdleCause::between : IdleCause::unknown}},
          event(other).end_ns());
      work_ = other;
      return;
    }
  }
  if (free_ns == kNever) return add({.of = PathOf::unknown}, begin_ns_);
  const IdlePlace at_call =
      call == kAbsentEvent
          ? IdlePlace{}
          : here().host.place(here().host.innermost(event(call).lane, event(call).begin_ns), IdleCause::launch);
  if (before_ns >= called_ns) {
    const bool is_late = call != kAbsentEvent && event(call).end_ns() > before_ns;
    if (is_late) {
      add({.of = PathOf::launch, .place = at_call}, before_ns);
    } else {
      const bool is_gap = now_ns_ - before_ns <= kBetweenKernels_ns;
      add({.of = is_gap ? PathOf::gap : PathOf::unknown,
           .place = {.cause = is_gap ? IdleCause::between : IdleCause::queued}},
          before_ns);
    }
    work_ = before;
    return;
  }
  add({.of = PathOf::launch, .place = at_call}, called_ns);
  work_ = kAbsentEvent;
  lane_ = event(call).lane;
}

// Returns whether a thread does something of its own: an operator, a call, loading data and the like.
bool PathWalk::is_busy(std::size_t lane, std::int64_t time_ns) const {
  const HostThreads& host = here().host;
  const std::uint32_t innermost = host.innermost(lane, time_ns);
  if (innermost == kAbsentEvent) return false;
  const IdlePlace place = host.place(innermost, IdleCause::late);
  return place.op != 0 || place.call != 0 || HostThreads::is_cause(place) || host.role(innermost) == HostRole::line;
}

// Returns the thread to follow: the one in hand, another that launches while this one does nothing, else the main one.
std::size_t PathWalk::lane_at(std::int64_t time_ns) const {
  if (is_busy(lane_, time_ns)) return lane_;
  for (const std::uint32_t lane : here().launches_on)
    if (lane != lane_ && is_busy(lane, time_ns)) return lane;
  return here().host.main();
}

// From now back to a time, along the threads that launch. Returns false if it leads to work of the device before: a
// host of which nothing is recorded until that work ended was waiting for it.
bool PathWalk::on_host(std::int64_t until_ns) {
  const HostThreads& host = here().host;
  until_ns = std::max(until_ns, begin_ns_);
  while (now_ns_ > until_ns) {
    const std::int64_t just_before = now_ns_ - 1;
    lane_ = lane_at(just_before);
    std::int64_t from_ns = until_ns;
    for (const std::uint32_t lane : here().launches_on)
      from_ns = std::max(from_ns, host.last_change(lane, just_before));
    const std::uint32_t innermost = host.innermost(lane_, just_before);
    IdlePlace place = host.place(innermost, IdleCause::late);
    if (place.cause == IdleCause::late && innermost != kAbsentEvent && host.role(innermost) == HostRole::synchronises)
      place.cause = IdleCause::synchronises;
    from_ns = std::min(from_ns, just_before);
    if (HostThreads::is_empty(place)) {
      const std::uint32_t work = newest_work(now_ns_, now_ns_, kAbsentEvent);
      if (work != kAbsentEvent && event(work).end_ns() > from_ns && now_ns_ - event(work).end_ns() <= kUnrecorded_ns) {
        add({.of = PathOf::host, .place = place}, event(work).end_ns());
        work_ = work;
        at_end_ = true;
        return false;
      }
    }
    add({.of = PathOf::host, .place = place}, from_ns);
  }
  return true;
}

// From now back to what the host waited for: the device, or a collective.
void PathWalk::through_host() {
  const RankPaths& rank = here();
  const auto ended_by = [&](const std::vector<std::uint32_t>& list, std::int64_t time_ns) {
    const auto later = std::ranges::upper_bound(list, time_ns, {}, [&](std::uint32_t i) { return event(i).end_ns(); });
    return static_cast<std::size_t>(later - list.begin());
  };
  for (std::size_t i = ended_by(rank.waits, now_ns_); i > 0; --i) {
    const Event& wait = event(rank.waits[i - 1]);
    if (wait.end_ns() <= begin_ns_) break;
    const std::uint32_t work = newest_work(wait.end_ns() + kHostClockError_ns, wait.end_ns(), kAbsentEvent);
    if (work == kAbsentEvent || event(work).end_ns() <= wait.begin_ns) continue;
    if (!on_host(std::min(event(work).end_ns(), wait.end_ns()))) return;
    work_ = work;
    at_end_ = true;
    return;
  }
  for (std::size_t i = ended_by(rank.comms, now_ns_ - 1); i > 0; --i) {
    const Event& comm = event(rank.comms[i - 1]);
    if (comm.end_ns() <= begin_ns_) break;
    const std::int64_t at_end = comm.end_ns() - 1;
    const auto works = [&](std::uint32_t lane) {
      const IdlePlace place = rank.host.place(rank.host.innermost(lane, at_end), IdleCause::late);
      return is_busy(lane, at_end) && !trace_.strings.text(place.op).starts_with("c10d::");
    };
    if (std::ranges::any_of(rank.launches_on, works)) continue;
    if (!on_host(comm.end_ns())) return;
    work_ = rank.comms[i - 1];
    at_end_ = true;
    return;
  }
  on_host(begin_ns_);
}

}  // namespace ms::tracepp
