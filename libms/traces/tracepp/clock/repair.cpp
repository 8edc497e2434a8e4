// First all operations are looked at, by two threads. Only around those that are violated is anything done: a push of a
// rank's clock, then the operations that the push may have violated, in the order of time. A pushed clock runs at half
// speed until it is right again, so pushes of one rank are a staircase that a binary search reads.
#include "tracepp/clock/repair.h"

#include <algorithm>
#include <array>
#include <limits>
#include <queue>
#include <thread>

namespace ms::tracepp {
namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::min();
constexpr std::size_t kBlock = 64;                   // events
constexpr std::size_t kOperationsForThreads = 4096;  // below, starting a thread costs more than it saves
// Where orders contradict each other, as only bad data do, pushes would go round for ever: none goes beyond this many
// times the worst violation, and all together look at no more members of operations than this.
constexpr std::int64_t kFurthest = 16;
constexpr std::uint64_t kPatience = 100'000'000;

// The waits of an operation: ends of `waits` come after begins of `gives`.
struct Role {
  bool gives = false, waits = false;
};
Role role_of(const EventInfo& info, int rank, const std::vector<int>& ranks) {
  switch (info.kind) {
    case Kind::all_reduce:
    case Kind::reduce_scatter:
    case Kind::all_gather:
    case Kind::barrier:
    case Kind::all_to_all: return {true, true};
    case Kind::send: return {true, false};
    case Kind::recv: return {false, true};
    case Kind::broadcast: {
      const auto root = static_cast<std::size_t>(info.root);
      const bool is_root = info.root >= 0 && root < ranks.size() && ranks[root] == rank;
      return {is_root, true};
    }
    default: return {};
  }
}

// A rank's clock where it was pushed.
class Pushes {
 public:
  bool empty() const { return pushes_.empty(); }
  std::int64_t operator()(std::int64_t t) const {
    const auto after = std::ranges::upper_bound(pushes_, t, {}, &Push::at_ns);
    if (after == pushes_.begin()) return t;
    const std::int64_t until = (after - 1)->until_ns;
    return until > t ? t + (until - t) / 2 : t;
  }
  // From `at` on: there, `to`. Returns when the clock is right again.
  std::int64_t add(std::int64_t at, std::int64_t to) {
    const Push push{at, 2 * to - at};
    auto place = std::ranges::upper_bound(pushes_, at, {}, &Push::at_ns);
    auto end = place;
    while (end != pushes_.end() && end->until_ns <= push.until_ns) ++end;
    place = pushes_.erase(place, end);
    if (place != pushes_.begin() && (place - 1)->at_ns == at) {
      *(place - 1) = push;
    } else {
      pushes_.insert(place, push);
    }
    return push.until_ns;
  }

 private:
  struct Push {
    std::int64_t at_ns, until_ns;
  };
  std::vector<Push> pushes_;  // both rising
};

class Repairer {
 public:
  Repairer(RunTrace& trace, const Matches& matches, const std::vector<std::size_t>& clock_of)
      : trace_(trace), matches_(matches), clock_of_(clock_of), crosses_(trace.groups.size()) {
    for (std::size_t g = 0; g < crosses_.size(); ++g) crosses_[g] = static_cast<char>(crosses(g));
  }

  Repair run() {
    const std::vector<std::uint32_t> violated = scan(&repair_.orders, &repair_.violated_before);
    if (violated.empty()) return repair_;
    pushes_.resize(trace_.ranks.size());
    index_.resize(trace_.ranks.size());
    queued_.resize(matches_.operations.size());
    for (const std::uint32_t o : violated) queue(o);
    while (!queue_.empty() && looked_at_ < kPatience) {
      const std::uint32_t o = queue_.top().second;
      queue_.pop();
      queued_[o] = false;
      settle(o);
    }
    apply();
    std::uint64_t orders = 0;
    scan(&orders, &repair_.violated_after);
    return repair_;
  }

 private:
  // The latest begin of those that give, and the latest on another clock than that one's.
  struct Latest {
    std::int64_t first_ns = kNever, second_ns = kNever;
    std::size_t clock = 0;
    void add(std::size_t of, std::int64_t begin_ns) {
      if (first_ns == kNever || of == clock) {
        first_ns = std::max(first_ns, begin_ns);
        clock = of;
      } else if (begin_ns > first_ns) {
        second_ns = first_ns;
        first_ns = begin_ns;
        clock = of;
      } else {
        second_ns = std::max(second_ns, begin_ns);
      }
    }
    std::int64_t elsewhere(std::size_t of) const { return of == clock ? second_ns : first_ns; }
  };

  bool crosses(std::size_t group) const {
    const Matches::Range range = matches_.of_group(static_cast<std::int32_t>(group));
    if (range.first == range.end) return false;
    // Who is in a group does not change; where members are missing, the others' operations show them.
    std::size_t clock = clock_of_[matches_.members_of(range.first).front().rank];
    for (std::uint32_t o = range.first; o < range.end; ++o) {
      for (const Member& member : matches_.members_of(o)) {
        if (clock_of_[member.rank] != clock) return true;
      }
    }
    return false;
  }

  Role role(const Member& member, const Event& event) const {
    const EventInfo& info = trace_.info(event);
    if (event.state == State::issued) return {};
    Role role =
        role_of(info, trace_.ranks[member.rank].rank, trace_.groups[static_cast<std::size_t>(info.group)].ranks);
    role.waits = role.waits && event.state == State::ended;
    return role;
  }

  // f(member, its end, the begin that it must not precede) for each order; begins and ends as `time` gives them.
  template <class Time, class F>
  void each_order(std::uint32_t operation, Time&& time, F&& f) const {
    const auto members = matches_.members_of(operation);
    Latest latest;
    for (const Member& member : members) {
      const Event& event = event_of(trace_, member);
      if (role(member, event).gives) latest.add(clock_of_[member.rank], time(member, event.begin_ns));
    }
    if (latest.first_ns == kNever) return;
    for (const Member& member : members) {
      const std::int64_t begin = latest.elsewhere(clock_of_[member.rank]);
      if (begin == kNever) continue;
      const Event& event = event_of(trace_, member);
      if (role(member, event).waits) f(member, event.end_ns(), time(member, event.end_ns()), begin);
    }
  }

  std::vector<std::uint32_t> scan(std::uint64_t* orders, std::uint64_t* violated) {
    struct Part {
      std::uint64_t orders = 0, violated = 0;
      std::int64_t worst_ns = 0;
      std::vector<std::uint32_t> operations;
    };
    std::array<Part, 2> parts;
    const auto look = [&](Part& part, std::size_t first, std::size_t end) {
      const auto as_it_is = [](const Member&, std::int64_t t) { return t; };
      for (std::size_t o = first; o < end; ++o) {
        if (!crosses_[static_cast<std::size_t>(matches_.operations[o].group)]) continue;
        bool any = false;
        each_order(static_cast<std::uint32_t>(o), as_it_is,
                   [&](const Member&, std::int64_t, std::int64_t end_ns, std::int64_t begin_ns) {
                     ++part.orders;
                     if (end_ns >= begin_ns) return;
                     ++part.violated;
                     part.worst_ns = std::max(part.worst_ns, begin_ns - end_ns);
                     any = true;
                   });
        if (any) part.operations.push_back(static_cast<std::uint32_t>(o));
      }
    };
    const std::size_t count = matches_.operations.size();
    // Half of the members each.
    const std::size_t middle =
        count < kOperationsForThreads
            ? count
            : static_cast<std::size_t>(
                  std::ranges::lower_bound(matches_.operations, matches_.members.size() / 2, {}, &Operation::first) -
                  matches_.operations.begin());
    {
      std::jthread other;
      if (middle < count) other = std::jthread([&] { look(parts[1], middle, count); });
      look(parts[0], 0, middle);
    }
    *orders = parts[0].orders + parts[1].orders;
    worst_ns_ = std::max(parts[0].worst_ns, parts[1].worst_ns);
    *violated = parts[0].violated + parts[1].violated;
    parts[0].operations.insert(parts[0].operations.end(), parts[1].operations.begin(), parts[1].operations.end());
    return std::move(parts[0].operations);
  }

  void queue(std::uint32_t operation) {
    if (queued_[operation]) return;
    std::int64_t latest = kNever;
    for (const Member& member : matches_.members_of(operation))
      latest = std::max(latest, event_of(trace_, member).begin_ns);
    queued_[operation] = true;
    queue_.push({latest, operation});
  }

  void settle(std::uint32_t operation) {
    const auto pushed = [&](const Member& member, std::int64_t t) { return pushes_[member.rank](t); };
    struct Move {
      std::uint32_t rank;
      std::int64_t at, to;
    };
    std::vector<Move> moves;
    looked_at_ += matches_.members_of(operation).size();
    each_order(operation, pushed, [&](const Member& member, std::int64_t at, std::int64_t end, std::int64_t begin) {
      if (end < begin && begin - at <= kFurthest * worst_ns_) moves.push_back({member.rank, at, begin});
    });
    for (const Move& move : moves) queue_begins(move.rank, move.at, pushes_[move.rank].add(move.at, move.to));
  }

  // Where a rank's events lie that begin in a stretch of time: events are nearly in order of begin.
  struct Index {
    std::vector<std::int64_t> latest;    // begin up to a block's end
    std::vector<std::int64_t> earliest;  // begin from a block's begin on
  };
  void queue_begins(std::uint32_t rank, std::int64_t from, std::int64_t until) {
    const std::vector<Event>& events = trace_.ranks[rank].events;
    Index& index = index_[rank];
    if (index.latest.empty()) {
      const std::size_t blocks = (events.size() + kBlock - 1) / kBlock;
      index.latest.assign(blocks, kNever);
      index.earliest.assign(blocks, std::numeric_limits<std::int64_t>::max());
      for (std::size_t e = 0; e < events.size(); ++e) {
        if (events[e].state == State::issued) continue;
        index.latest[e / kBlock] = std::max(index.latest[e / kBlock], events[e].begin_ns);
        index.earliest[e / kBlock] = std::min(index.earliest[e / kBlock], events[e].begin_ns);
      }
      for (std::size_t b = 1; b < blocks; ++b) index.latest[b] = std::max(index.latest[b], index.latest[b - 1]);
      for (std::size_t b = blocks - 1; b > 0; --b)
        index.earliest[b - 1] = std::min(index.earliest[b - 1], index.earliest[b]);
    }
    const auto block = static_cast<std::size_t>(std::ranges::lower_bound(index.latest, from) - index.latest.begin());
    for (std::size_t b = block; b < index.latest.size() && index.earliest[b] < until; ++b) {
      looked_at_ += kBlock;
      for (std::size_t e = b * kBlock; e < std::min(events.size(), (b + 1) * kBlock); ++e) {
        const Event& event = events[e];
        if (event.state == State::issued || event.begin_ns < from || event.begin_ns >= until) continue;
        const EventInfo& info = trace_.info(event);
        if (!trace::is_comm(info.kind) || info.group < 0 || event.detail == kNoDetail) continue;
        if (!crosses_[static_cast<std::size_t>(info.group)]) continue;
        const std::uint32_t operation = matches_.find(info.group, event.detail);
        if (operation != Matches::kNone) queue(operation);
      }
    }
  }

  void apply() {
    for (std::size_t r = 0; r < trace_.ranks.size(); ++r) {
      const Pushes& pushes = pushes_[r];
      if (pushes.empty()) continue;
      RankTrace& rank = trace_.ranks[r];
      for (Event& event : rank.events) {
        if (event.state == State::issued) continue;
        const std::int64_t begin = pushes(event.begin_ns);
        const std::int64_t duration = event.state == State::ended ? pushes(event.end_ns()) - begin : 0;
        const std::int64_t moved = std::max(begin - event.begin_ns, begin + duration - event.end_ns());
        repair_.largest_ns = std::max(repair_.largest_ns, moved);
        repair_.moved_events += static_cast<std::uint64_t>(moved > 0);
        event.begin_ns = begin;
        event.duration_ns = duration;
      }
      for (StepSum& sum : rank.sums) {
        sum.begin_ns = pushes(sum.begin_ns);
        sum.end_ns = pushes(sum.end_ns);
      }
      rank.last_flush_ns = pushes(rank.last_flush_ns);
    }
  }

  RunTrace& trace_;
  const Matches& matches_;
  const std::vector<std::size_t>& clock_of_;
  std::vector<char> crosses_;  // by group: more than one clock
  Repair repair_;
  std::int64_t worst_ns_ = 0;                             // violation in the last scan
  std::uint64_t looked_at_ = 0;                           // members and events
  std::vector<Pushes> pushes_;                            // by rank
  std::vector<Index> index_;                              // by rank, once needed
  std::vector<char> queued_;                              // by operation
  using Queued = std::pair<std::int64_t, std::uint32_t>;  // when, operation
  std::priority_queue<Queued, std::vector<Queued>, std::greater<>> queue_;
};

}  // namespace

Repair repair_orders(RunTrace& trace, const Matches& matches, const std::vector<std::size_t>& clock_of) {
  return Repairer(trace, matches, clock_of).run();
}

}  // namespace ms::tracepp
