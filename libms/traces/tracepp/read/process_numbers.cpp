
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "tracepp/read/flight_recorder_run.h"
#include "tracepp/robust.h"

namespace ms::tracepp {
namespace {

constexpr std::int64_t kNearPlaces = 16;  // places that two members may be apart by what ended last
constexpr std::int64_t kCompared = 64;    // collectives
constexpr std::int64_t kLeastAlike = 4;   // of them
constexpr double kClearly = 4;            // times the spread of the times

class GroupNumbers {
 public:
  explicit GroupNumbers(RunTrace& trace) : trace_(trace) {}

  void give() {
    std::map<std::int32_t, std::vector<Member>> groups;
    for (RankTrace& rank : trace_.ranks) {
      std::map<std::int32_t, Member> own;
      for (std::uint32_t i = 0; i < rank.events.size(); ++i) {
        const EventInfo& info = trace_.info(rank.events[i]);
        if (info.group < 0 || trace::is_point_to_point(info.kind)) continue;
        Member& member = own.try_emplace(info.group, Member{.rank = &rank, .events = {}}).first->second;
        member.events.push_back(i);
        if (rank.events[i].state == State::ended && needs_all_members(info.kind))
          member.ended = std::ssize(member.events);
      }
      for (auto& [group, member] : own) groups[group].push_back(std::move(member));
    }
    for (auto& [group, members] : groups) number(trace_.groups[static_cast<std::size_t>(group)], members);
  }

 private:
  struct Member {
    RankTrace* rank = nullptr;
    std::vector<std::uint32_t> events;  // collectives of the group, in order of issue
    std::int64_t ended = 0;             // of these up to the last one that ended and needs all members
  };

  const Event& event(const Member& member, std::int64_t place) const {
    return member.rank->events[member.events[static_cast<std::size_t>(place)]];
  }

  bool are_alike(const Event& a, const Event& b) const {
    const EventInfo &one = trace_.info(a), &other = trace_.info(b);
    return one.kind == other.kind && one.name == other.name &&
           (one.kind != Kind::all_reduce || one.size_bytes == other.size_bytes);
  }

  // Returns how much the distance in time varies between collectives of two members, if those of the first come
  // `ahead` places later in the second; nullopt: then some that ended differ, or they share too few.
  std::optional<double> spread(const Member& one, const Member& other, std::int64_t ahead) const {
    const std::int64_t end = std::min(one.ended, other.ended - ahead);
    const std::int64_t begin = std::max({std::int64_t{0}, -ahead, end - kCompared});
    std::vector<double> distances;
    for (std::int64_t i = begin; i < end; ++i) {
      const Event &a = event(one, i), &b = event(other, i + ahead);
      if (!are_alike(a, b)) return std::nullopt;
      distances.push_back(static_cast<double>(a.begin_ns - b.begin_ns));
    }
    if (std::ssize(distances) < kLeastAlike) return std::nullopt;
    return robust_spread(std::move(distances)).sigma;
  }

  // Returns at which place of `other` the first collective of a member comes. What ended last is the same on both,
  // unless one dump is older: then, the times of issue tell.
  std::optional<std::int64_t> place_of(const Member& member, const Member& other) const {
    const std::int64_t usual = other.ended - member.ended;
    std::optional<std::int64_t> best;
    std::optional<double> least = spread(member, other, usual);
    if (least) best = usual;
    for (std::int64_t by = 1; by <= kNearPlaces; ++by) {
      for (const std::int64_t ahead : {usual - by, usual + by}) {
        const std::optional<double> sigma = spread(member, other, ahead);
        if (!sigma || (least && *sigma * kClearly >= *least)) continue;
        best = ahead;
        least = sigma;
      }
    }
    return best;
  }

  void number(ProcessGroup& group, const std::vector<Member>& members) {
    auto reference = std::ranges::find_if(members, [](const Member& it) { return !it.rank->is_partial; });
    if (reference == members.end()) reference = members.begin();
    std::vector<std::int64_t> firsts;
    for (const Member& member : members) {
      std::optional<std::int64_t> first;
      if (&member == &*reference || !member.rank->is_partial) first = 0;
      if (!first) first = place_of(member, *reference);
      group.is_guessed |= !first;
      firsts.push_back(first.value_or(reference->ended - member.ended));
    }
    const std::int64_t least = std::min<std::int64_t>(0, std::ranges::min(firsts));
    for (std::size_t m = 0; m < members.size(); ++m)
      for (std::size_t i = 0; i < members[m].events.size(); ++i)
        members[m].rank->events[members[m].events[i]].detail =
            static_cast<std::uint32_t>(firsts[m] - least + static_cast<std::int64_t>(i));
  }

  RunTrace& trace_;
};

}  // namespace

void number_by_group(RunTrace& trace) {
  if (std::ranges::any_of(trace.ranks, &RankTrace::counts_process)) GroupNumbers(trace).give();
}

}  // namespace ms::tracepp
