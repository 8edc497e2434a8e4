// A group of ranks that communicate: a name for error messages, an id that all ranks derive without communicating
// (groups are created in one global order), and the members' global ranks in the order of the group.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ms::comm {

struct Group {
  std::string name;        // "tp", "dp", "pp.fwd 0>1"
  int id = 0;              // the same number on every member, different for every group of the run
  std::vector<int> ranks;  // global ranks; the position is the rank in the group
  // The number of NCCL channels (thread blocks) that an operation of the group may use on a GPU with 100 or more
  // multiprocessors; proportionally fewer on a smaller GPU. The same on all members; 0: NCCL decides.
  int width = 0;

  int size() const { return static_cast<int>(ranks.size()); }
  // Returns the position of a global rank, -1 if it is not a member.
  int index_of(int global_rank) const {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] == global_rank) return static_cast<int>(i);
    }
    return -1;
  }
};

// Splits a group into one group per color: colors[i] belongs to member i, members keep their order, and groups are in
// ascending order of color with ids first_id, first_id + 1, ... and names "NAME 0", "NAME 1", ... Pure: every member
// computes the same list, so splitting does not communicate; World::open() then takes the group that the rank is in.
inline std::vector<Group> split(const Group& parent, const std::vector<int>& colors, int first_id) {
  MS_ASSERT(colors.size() == parent.ranks.size(), "{} colors for the {} members of {}", colors.size(), parent.size(),
            parent.name);
  std::map<int, std::vector<int>> members;
  for (std::size_t i = 0; i < colors.size(); ++i) members[colors[i]].push_back(parent.ranks[i]);
  std::vector<Group> groups;
  for (auto& [color, ranks] : members) {
    const int number = static_cast<int>(groups.size());
    groups.push_back({parent.name + " " + std::to_string(number), first_id + number, std::move(ranks)});
  }
  return groups;
}

}  // namespace ms::comm
