#include "tracepp/run_trace.h"

#include <algorithm>

namespace ms::tracepp {

std::string_view to_string(Ending ending) {
  switch (ending) {
    case Ending::unknown:
      return "unknown";
    case Ending::running:
      return "running";
    case Ending::done:
      return "done";
    case Ending::failed:
      return "failed";
    case Ending::timed_out:
      return "timed_out";
    case Ending::stopped:
      return "stopped";
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
  mix(static_cast<std::uint64_t>(info.kind) << 32 | static_cast<std::uint64_t>(info.purpose) << 16 |
      static_cast<std::uint16_t>(info.chunk));
  mix(static_cast<std::uint64_t>(info.name) << 32 | info.type);
  mix(static_cast<std::uint64_t>(static_cast<std::uint32_t>(info.group)) << 32 | static_cast<std::uint32_t>(info.root));
  mix(static_cast<std::uint64_t>(info.size_bytes));
  return hash;
}

Tables::Tables(RunTrace& trace) : trace_(trace) {
  for (std::size_t i = 0; i < trace.infos.size(); ++i)
    infos_.try_emplace(trace.infos[i], static_cast<std::uint32_t>(i));
  for (std::size_t i = 0; i < trace.groups.size(); ++i) {
    groups_.try_emplace({trace.groups[i].name, trace.groups[i].ranks}, static_cast<std::int32_t>(i));
    members_ += trace.groups[i].ranks.size();
  }
}

std::uint32_t Tables::info(const EventInfo& info) {
  const auto [place, is_new] = infos_.try_emplace(info, static_cast<std::uint32_t>(trace_.infos.size()));
  if (is_new) trace_.infos.push_back(info);
  return place->second;
}

std::int32_t Tables::group(const ProcessGroup& group) {
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
  members_ += ranks.size();
  return next;
}

}  // namespace ms::tracepp
