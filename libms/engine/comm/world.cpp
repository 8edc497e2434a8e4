#include "comm/world.h"

namespace ms::comm {

std::vector<int> World::node_ranks() const {
  std::vector<int> ranks;
  for (int other = 0; other < size(); ++other) {
    if (node(other) == node(rank())) ranks.push_back(other);
  }
  return ranks;
}

}  // namespace ms::comm
