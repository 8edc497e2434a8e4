#include "net/judge/layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace ms::net {

bool Layout::below(int node, int of) const {
  int at = leaf_of[static_cast<std::size_t>(node)];
  while (at != kNone && at != of) at = above[static_cast<std::size_t>(at)];
  return at == of;
}

int Layout::distance(int a, int b) const {
  if (!known()) return 0;
  int up_a = 0;
  for (int s = leaf_of[static_cast<std::size_t>(a)]; s != kNone; s = above[static_cast<std::size_t>(s)], ++up_a) {
    int up_b = 0;
    for (int t = leaf_of[static_cast<std::size_t>(b)]; t != kNone; t = above[static_cast<std::size_t>(t)], ++up_b)
      if (s == t) return std::max(up_a, up_b);
  }
  return up_a;
}

std::string distance_text(int distance) {
  if (distance == 0) return "below one leaf switch";
  return distance == 1 ? "one level up" : fmt::format("{} levels up", distance);
}

}  // namespace ms::net
