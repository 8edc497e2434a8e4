#include "tracepp/run_trace.h"

#include <algorithm>
#include <bit>

namespace ms::tracepp {

std::string_view to_string(Ending ending) {
  switch (ending) {
    case Ending::unknown: return "unknown";
    case Ending::running: return "running";
    case Ending::done: return "done";
    case Ending::failed: return "failed";
    case Ending::timed_out: return "timed_out";
    case Ending::stopped: return "stopped";
  }
  return "unknown";
}

std::uint32_t Strings::id(std::string_view text) {
  const auto found = ids_.find(text);
  if (found != ids_.end()) return found->second;
  const auto id = static_cast<std::uint32_t>(texts_.size());
  texts_.push_back(&ids_.emplace(text, id).first->first);
  return id;
}

std::size_t RunTrace::event_count() const {
  std::size_t count = 0;
  for (const RankTrace& rank : ranks) count += rank.events.size();
  return count;
}

const RankTrace* RunTrace::rank(int number) const {
  const auto found = std::ranges::lower_bound(ranks, number, {}, &RankTrace::rank);
  return found != ranks.end() && found->rank == number ? &*found : nullptr;
}

std::size_t Tables::InfoHash::operator()(const EventInfo& info) const {
  std::uint64_t hash = 0;
  const auto mix = [&](std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15;
    hash ^= hash >> 29;
  };
  mix(static_cast<std::uint64_t>(info.origin) << 40 | static_cast<std::uint64_t>(info.kind) << 32 |
      static_cast<std::uint64_t>(info.purpose) << 16 | static_cast<std::uint16_t>(info.chunk));
  mix(static_cast<std::uint64_t>(info.name) << 32 | info.type);
  mix(static_cast<std::uint64_t>(static_cast<std::uint32_t>(info.group)) << 32 | static_cast<std::uint32_t>(info.root));
  mix(static_cast<std::uint64_t>(info.size_bytes));
  mix(std::bit_cast<std::uint64_t>(info.flops));
  mix(static_cast<std::uint32_t>(info.timeout_s));
  return hash;
}

Tables::Tables(RunTrace& trace) : trace_(trace) { catch_up(); }

void Tables::catch_up() {
  for (; known_infos_ < trace_.infos.size(); ++known_infos_)
    infos_.try_emplace(trace_.infos[known_infos_], static_cast<std::uint32_t>(known_infos_));
  for (; known_groups_ < trace_.groups.size(); ++known_groups_) {
    const ProcessGroup& group = trace_.groups[known_groups_];
    groups_.try_emplace({group.name, group.ranks}, static_cast<std::int32_t>(known_groups_));
    members_ += group.ranks.size();
  }
}

std::uint32_t Tables::info(const EventInfo& info) {
  catch_up();
  const auto [place, is_new] = infos_.try_emplace(info, static_cast<std::uint32_t>(trace_.infos.size()));
  if (is_new) trace_.infos.push_back(info);
  return place->second;
}

std::int32_t Tables::group(const ProcessGroup& group) {
  catch_up();
  const auto next = static_cast<std::int32_t>(trace_.groups.size());
  std::pair key(group.name, group.ranks);
  if (members_ + group.ranks.size() > kMostMembers) {
    if (const auto known = groups_.find(key); known != groups_.end()) return known->second;
    ++trace_.problems["group with more members than there is room for"];
    key.second.clear();
  }
  const auto [place, is_new] = groups_.try_emplace(std::move(key), next);
  if (!is_new) return place->second;
  const auto& [name, ranks] = place->first;
  trace_.groups.push_back({.name = name, .ranks = ranks, .axis = group.axis});
  return next;
}

}  // namespace ms::tracepp
