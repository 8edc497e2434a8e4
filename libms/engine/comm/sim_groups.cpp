#include "comm/sim_groups.h"

#include <algorithm>

namespace ms::comm {

SimGroups::SimGroups(const SimSetup& setup) : setup_(setup) {
  for (std::size_t r = 0; r < setup.ranks.size(); ++r) {
    const SimRecording& recording = *setup.ranks[r].recording;
    // Ignores groups without operations.
    std::vector<char> used(recording.groups.size()), is_channel(recording.groups.size());
    for (const SimCommOp& op : recording.comm_ops) {
      used[op.group] = 1;
      is_channel[op.group] = op.kind == OpKind::send || op.kind == OpKind::recv ? 1 : 0;
    }
    std::vector<std::size_t>& index = index_.emplace_back(recording.groups.size());
    for (std::uint32_t g = 0; g < recording.groups.size(); ++g)
      if (used[g] != 0) index[g] = find(r, g, is_channel[g] != 0);
  }
}

std::size_t SimGroups::find(std::size_t rank, std::uint32_t recorded_group, bool is_channel) {
  const SimRank& here = setup_.ranks[rank];
  const Group& recorded = here.recording->groups[recorded_group];
  Group group = recorded;
  if (setup_.moved)
    for (int& member : group.ranks) member = setup_.moved(here.recording->rank, here.rank, member);
  // "tp[dp 0 pp 1]" and "tp[dp 1 pp 1]" have the same kind, "tp"; groups of a kind are disjoint, and channels differ by
  // their ends. A rank that represents both ends of a channel represents a ring of such channels, as slow as the slower
  // one of the two of which it is an end: the ring comes home by its longest way.
  const std::string kind = group.name.substr(0, group.name.find('['));
  const auto ends = [&](int member) { return static_cast<int>(setup_.stands_for(member)); };
  const Key key = is_channel ? Key{kind, ends(group.ranks.front()), ends(group.ranks.back())}
                             : Key{kind, std::ranges::min(group.ranks), group.size()};
  const auto [place, is_new] = known_.try_emplace(key, groups_.size());
  if (!is_new && !is_channel) return place->second;
  const cost::Path path = cost::path_of(*setup_.cluster, group.ranks, "group " + group.name,
                                        setup_.network_share ? setup_.network_share(group) : 1);
  if (is_new) groups_.emplace_back();
  SimGroup& made = groups_[place->second];
  if (!is_new && path.meet <= made.path.meet) return place->second;
  made.path = path;
  made.size = group.size();
  made.is_free = setup_.is_free && setup_.is_free(group);
  std::vector<std::size_t> members;  // the ranks that represent them
  for (const int member : group.ranks) members.push_back(setup_.stands_for(member));
  if (is_channel) {
    made.links = {link_of(members.front(), made.path.meet, true), link_of(members.back(), made.path.meet, false)};
  } else {
    std::ranges::sort(members);
    members.erase(std::unique(members.begin(), members.end()), members.end());
    for (const std::size_t member : members)
      for (const bool sends : {true, false}) made.links.push_back(link_of(member, made.path.meet, sends));
  }
  made.arrivals = members.size();
  return place->second;
}

cost::Collective collective_of(OpKind kind) {
  switch (kind) {
    case OpKind::all_reduce: return cost::Collective::all_reduce;
    case OpKind::reduce_scatter: return cost::Collective::reduce_scatter;
    case OpKind::all_gather: return cost::Collective::all_gather;
    case OpKind::all_to_all: return cost::Collective::all_to_all;
    case OpKind::broadcast: return cost::Collective::broadcast;
    case OpKind::send:
    case OpKind::recv: return cost::Collective::point_to_point;
    case OpKind::barrier: break;
  }
  return cost::Collective::barrier;
}

}  // namespace ms::comm
