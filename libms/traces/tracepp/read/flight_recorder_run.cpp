#include "tracepp/read/flight_recorder_run.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>

namespace ms::tracepp {
namespace {

constexpr std::string_view kDefaultGroup = "default_pg";  // PyTorch's description of the group of all ranks
// Dumps of a run are written within this time: whoever lacks an operation that another issued longer ago never issued
// it.
constexpr std::int64_t kSameTime_ns = 1'000'000'000;

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool is_channel(const RunTrace& trace, const Event& event) { return trace::is_point_to_point(trace.info(event).kind); }

// Moves the operations of groups whose members a dump does not name, as it was cut before it did, to the group of this
// name that other dumps name and the rank is in, if there is one.
void join_named(RunTrace& trace) {
  const auto is_unknown = [&](std::int32_t group) {
    return group >= 0 && trace.groups[static_cast<std::size_t>(group)].ranks.empty();
  };
  std::map<std::string, std::vector<std::int32_t>, std::less<>> named;
  for (std::size_t i = 0; i < trace.groups.size(); ++i)
    if (!trace.groups[i].ranks.empty()) named[trace.groups[i].name].push_back(static_cast<std::int32_t>(i));
  const auto joined = [&](std::int32_t group, int rank) {
    std::int32_t found = -1;
    const auto same_name = named.find(trace.groups[static_cast<std::size_t>(group)].name);
    if (same_name == named.end()) return group;
    for (const std::int32_t other : same_name->second) {
      if (!std::ranges::count(trace.groups[static_cast<std::size_t>(other)].ranks, rank)) continue;
      if (found >= 0) return group;
      found = other;
    }
    return found >= 0 ? found : group;
  };
  Tables tables(trace);
  for (RankTrace& rank : trace.ranks) {
    std::map<std::int32_t, std::int32_t> to;  // of this rank's groups
    const auto moved = [&](std::int32_t group) {
      const auto [known, is_new] = to.try_emplace(group, group);
      if (is_new && is_unknown(group)) known->second = joined(group, rank.rank);
      return known->second;
    };
    for (Event& event : rank.events) {
      EventInfo info = trace.info(event);
      if (!is_unknown(info.group) || moved(info.group) == info.group) continue;
      info.group = moved(info.group);
      event.info = tables.info(info);
    }
    for (auto& newest : rank.newest) newest.first = moved(newest.first);
  }
}

void complete_groups(RunTrace& trace) {
  int last = -1;
  for (const RankTrace& rank : trace.ranks) last = std::max(last, rank.rank);
  for (const ProcessGroup& group : trace.groups)
    for (const int rank : group.ranks) last = std::max(last, rank);
  if (last < 0 || static_cast<std::size_t>(last) >= Tables::kMostMembers) return;
  for (ProcessGroup& group : trace.groups) {
    if (!group.ranks.empty() || !group.name.starts_with(kDefaultGroup) || has(group.name, " batches of ")) continue;
    group.ranks.resize(static_cast<std::size_t>(last) + 1);
    std::iota(group.ranks.begin(), group.ranks.end(), 0);
  }
}

// The status of a group with sends and recvs counts them in place of collectives.
void forget_numbers_of_transfers(RunTrace& trace) {
  std::set<std::string_view> bases;  // names of groups whose channels were used
  for (const ProcessGroup& group : trace.groups)
    if (has(group.name, ">")) bases.insert(std::string_view(group.name).substr(0, group.name.rfind(' ')));
  for (RankTrace& rank : trace.ranks)
    std::erase_if(rank.newest, [&](const auto& it) {
      return bases.contains(trace.groups[static_cast<std::size_t>(it.first)].name);
    });
}

// Moves what came before the numbers of a group began again to a group of its own: PyTorch gives a destroyed group's
// name to the next one.
void split_recreated(RunTrace& trace) {
  constexpr std::uint32_t kFirst = 1;  // number of a group
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::vector<std::map<std::int32_t, std::size_t>> restarts(trace.ranks.size());  // by group: the event
  std::map<std::int32_t, std::int64_t> since_ns;                                  // by group: its earliest restart
  for (std::size_t at = 0; at < trace.ranks.size(); ++at) {
    std::unordered_map<std::int32_t, std::uint32_t> newest;
    const std::vector<Event>& events = trace.ranks[at].events;
    for (std::size_t i = 0; i < events.size(); ++i) {
      if (is_channel(trace, events[i])) continue;
      const std::int32_t group = trace.info(events[i]).group;
      const auto [last, is_new] = newest.try_emplace(group, events[i].detail);
      if (!is_new && events[i].detail <= std::min(kFirst, last->second)) {
        restarts[at][group] = i;
        since_ns.try_emplace(group, events[i].begin_ns);
        since_ns[group] = std::min(since_ns[group], events[i].begin_ns);
      }
      last->second = events[i].detail;
    }
  }
  if (since_ns.empty()) return;
  Tables tables(trace);
  for (std::size_t at = 0; at < trace.ranks.size(); ++at) {
    std::vector<Event>& events = trace.ranks[at].events;
    for (std::size_t i = 0; i < events.size(); ++i) {
      EventInfo info = trace.info(events[i]);
      const auto since = since_ns.find(info.group);
      if (since == since_ns.end() || is_channel(trace, events[i])) continue;
      const auto own = restarts[at].find(info.group);
      const std::size_t restart = own == restarts[at].end() ? kNone : own->second;
      if (restart == kNone ? events[i].begin_ns >= since->second : i >= restart) continue;
      ProcessGroup before = trace.groups[static_cast<std::size_t>(info.group)];
      before.name += " (destroyed)";
      info.group = tables.group(before);
      events[i].info = tables.info(info);
    }
  }
}

// Numbers the operations of channels whose ends do not both show the first ones.
class Channels {
 public:
  explicit Channels(RunTrace& trace) : trace_(trace) {}

  void number() {
    if (std::ranges::none_of(trace_.ranks, &RankTrace::is_partial)) return;
    std::map<std::int32_t, Ends> channels;
    for (std::size_t at = 0; at < trace_.ranks.size(); ++at) {
      const std::vector<Event>& events = trace_.ranks[at].events;
      for (std::uint32_t i = 0; i < events.size(); ++i) {
        if (!is_channel(trace_, events[i]) || trace_.info(events[i]).group < 0) continue;
        Ends& ends = channels[trace_.info(events[i]).group];
        const std::size_t side = trace_.info(events[i]).kind == Kind::send ? 0 : 1;
        ends[side].at = at;
        ends[side].events.push_back(i);
      }
    }
    for (auto& [group, ends] : channels) {
      if (ends[0].events.empty() || ends[1].events.empty()) continue;
      if (!rank(ends[0]).is_partial && !rank(ends[1]).is_partial) continue;
      number(trace_.groups[static_cast<std::size_t>(group)], ends);
    }
  }

 private:
  struct End {
    std::size_t at = 0;                 // in trace_.ranks
    std::vector<std::uint32_t> events;  // of this channel, in order of issue
  };
  using Ends = std::array<End, 2>;
  using Collective = std::pair<std::int32_t, std::uint32_t>;  // group and number

  RankTrace& rank(const End& end) { return trace_.ranks[end.at]; }

  // Both ends issue as many operations between two collectives that both take part in. Returns how many places the
  // operations of the second end are ahead, by the oldest and by the newest such collective; nullopt: they have none in
  // common, or the two differ.
  std::optional<std::int64_t> ahead_by_collectives(const Ends& ends) {
    const std::map<Collective, std::uint32_t>& other = collectives(ends[1].at);
    std::optional<std::int64_t> first;
    std::int64_t last = 0;
    for (const auto& [own_event, collective] : in_order(ends[0].at)) {
      const auto found = other.find(collective);
      if (found == other.end()) continue;
      last = before(ends[1], found->second) - before(ends[0], own_event);
      if (!first) first = last;
    }
    return first == last ? first : std::nullopt;
  }

  static std::int64_t before(const End& end, std::uint32_t event) {
    return std::ranges::lower_bound(end.events, event) - end.events.begin();
  }

  std::int64_t ended(const End& end) {
    const auto newest = std::find_if(end.events.rbegin(), end.events.rend(), [&](std::uint32_t event) {
      return rank(end).events[event].state == State::ended;
    });
    return end.events.rend() - newest;
  }

  void number(ProcessGroup& group, const Ends& ends) {
    const std::optional<std::int64_t> known = ahead_by_collectives(ends);
    group.is_guessed = !known;
    const std::int64_t ahead = known.value_or(ended(ends[1]) - ended(ends[0]));
    const std::array<std::int64_t, 2> first{std::max<std::int64_t>(ahead, 0), std::max<std::int64_t>(-ahead, 0)};
    for (std::size_t side = 0; side < 2; ++side)
      for (std::size_t i = 0; i < ends[side].events.size(); ++i)
        rank(ends[side]).events[ends[side].events[i]].detail =
            static_cast<std::uint32_t>(first[side] + static_cast<std::int64_t>(i));
  }

  const std::vector<std::pair<std::uint32_t, Collective>>& in_order(std::size_t at) {
    auto& found = in_order_[at];
    if (!found.empty()) return found;
    const std::vector<Event>& events = trace_.ranks[at].events;
    for (std::uint32_t i = 0; i < events.size(); ++i)
      if (!is_channel(trace_, events[i])) found.push_back({i, {trace_.info(events[i]).group, events[i].detail}});
    return found;
  }

  const std::map<Collective, std::uint32_t>& collectives(std::size_t at) {
    auto& found = collectives_[at];
    if (found.empty())
      for (const auto& [event, collective] : in_order(at)) found.try_emplace(collective, event);
    return found;
  }

  RunTrace& trace_;
  std::map<std::size_t, std::vector<std::pair<std::uint32_t, Collective>>> in_order_;  // by rank
  std::map<std::size_t, std::map<Collective, std::uint32_t>> collectives_;             // by rank
};

// Finds members without an operation that others ended, although no member can end it alone. Their dump is older, or
// the operation failed: gloo records it as ended when it gives up.
void find_failed(RunTrace& trace) {
  struct Least {
    std::int64_t number = 0;  // of the newest operation
    std::size_t at = 0;       // the rank that issued no other
  };
  std::vector<std::unordered_map<std::int32_t, std::int64_t>> newest(trace.ranks.size());
  for (std::size_t at = 0; at < trace.ranks.size(); ++at) {
    const RankTrace& rank = trace.ranks[at];
    const auto add = [&](std::int32_t group, std::int64_t number) {
      std::int64_t& known = newest[at].try_emplace(group, -1).first->second;
      known = std::max(known, number);
    };
    for (const Event& event : rank.events)
      if (!is_channel(trace, event) && event.detail != kNoDetail) add(trace.info(event).group, event.detail);
    for (const auto& [group, number] : rank.newest) add(group, number);
  }
  // Returns how long after the end of an operation a rank issued its newest; 0: before, or at about that time.
  const auto issued_after_s = [](const RankTrace& rank, const Event& event) {
    const std::int64_t after_ns = rank.events.empty() ? 0 : rank.events.back().begin_ns - event.end_ns();
    return after_ns > kSameTime_ns ? seconds(after_ns) : 0.0;
  };
  std::map<std::int32_t, Event> restarts;  // by group: what ended before newer dumps that lack it
  std::vector<char> is_cut;                // by rank: its file is
  for (const RankTrace& rank : trace.ranks) is_cut.push_back(rank.is_cut_off ? 1 : 0);
  std::map<std::int32_t, Least> least;
  const auto add = [&](std::int32_t group, std::int64_t number, std::size_t at) {
    if (trace.ranks[at].is_cut_off) return;
    const auto [known, is_new] = least.try_emplace(group, Least{number, at});
    if (!is_new && number < known->second.number) known->second = {number, at};
  };
  for (std::size_t at = 0; at < trace.ranks.size(); ++at)
    for (const auto& [group, number] : newest[at]) add(group, number, at);
  for (std::size_t i = 0; i < trace.groups.size(); ++i) {
    const auto group = static_cast<std::int32_t>(i);
    for (const int member : trace.groups[i].ranks) {
      const RankTrace* const rank = trace.rank(member);
      if (rank == nullptr || rank->is_partial) continue;
      const auto at = static_cast<std::size_t>(rank - trace.ranks.data());
      if (!newest[at].contains(group)) add(group, -1, at);
    }
  }
  for (std::size_t at = 0; at < trace.ranks.size(); ++at) {
    RankTrace& rank = trace.ranks[at];
    for (Event& event : rank.events) {
      const EventInfo& info = trace.info(event);
      const auto lacks = least.find(info.group);
      if (event.state != State::ended || event.detail == kNoDetail || lacks == least.end() ||
          !needs_all_members(info.kind) || lacks->second.number >= static_cast<std::int64_t>(event.detail))
        continue;
      RankTrace& other = trace.ranks[lacks->second.at];
      const bool was_seen_to_end = event.duration_ns > 0 || !rank.hides_failures;
      if (!was_seen_to_end && other.is_flush_time_known && other.last_flush_ns > event.begin_ns + kSameTime_ns) {
        event.state = State::begun;
        ++trace.problems["operation that failed, as a member never issued it, though it is recorded as ended"];
      } else {
        other.is_cut_off = true;
        if (other.events.empty() && other.newest.empty()) {
          other.is_empty = true;
        } else if (!other.is_older && is_cut[at] == 0 && issued_after_s(other, event) > 0) {
          other.later_s = issued_after_s(other, event);
          restarts.try_emplace(info.group, event);
        } else if (other.earlier_s <= 0 && other.later_s <= 0) {
          other.is_older = true;
        }
      }
    }
  }
  for (const auto& [group, event] : restarts) {
    for (std::size_t at = 0; at < trace.ranks.size(); ++at) {
      RankTrace& rank = trace.ranks[at];
      const auto number = newest[at].find(group);
      if (rank.is_cut_off || number == newest[at].end() || number->second >= static_cast<std::int64_t>(event.detail) ||
          issued_after_s(rank, event) <= 0)
        continue;
      rank.is_cut_off = true;
      rank.later_s = issued_after_s(rank, event);
    }
  }
}

// Dumps of a run are written at about the same time: where their files do not tell when, not before the newest entry of
// all.
void share_time(RunTrace& trace) {
  std::int64_t newest_ns = 0;
  for (const RankTrace& rank : trace.ranks)
    if (!rank.is_flush_time_known && !rank.is_cut_off) newest_ns = std::max(newest_ns, rank.last_flush_ns);
  for (RankTrace& rank : trace.ranks)
    if (!rank.is_flush_time_known) rank.last_flush_ns = std::max(rank.last_flush_ns, newest_ns);
}

}  // namespace

void relate_dumps(RunTrace& trace) {
  join_named(trace);
  number_by_group(trace);
  leave_out_earlier(trace);
  align_dumps(trace);
  complete_groups(trace);
  forget_numbers_of_transfers(trace);
  split_recreated(trace);
  Channels(trace).number();
  find_failed(trace);
  share_time(trace);
}

}  // namespace ms::tracepp
