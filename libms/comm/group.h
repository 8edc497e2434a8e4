// A group of ranks that communicate: a name for messages, an id that all ranks agree on without talking (groups are
// made in one global order), and the members by global rank, in the order of the group.
#pragma once

#include <string>
#include <vector>

namespace ms::comm {

struct Group {
  std::string name;        // "tp", "dp", "pp.fwd 0>1"
  int id = 0;              // the same number on every member, different for every group of the run
  std::vector<int> ranks;  // global ranks; the position is the rank in the group

  int size() const { return static_cast<int>(ranks.size()); }
  // Position of a global rank, -1 if it is no member.
  int index_of(int global_rank) const {
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] == global_rank) return static_cast<int>(i);
    }
    return -1;
  }
};

}  // namespace ms::comm
