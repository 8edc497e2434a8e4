// Which switches nodes hang below, and those below which, as far as that is known. Pure.
#pragma once

#include <string>
#include <vector>

namespace ms::net {

struct Layout {
  static constexpr int kNone = -1;
  std::vector<int> leaf_of = {};        // switch that each node hangs below; empty: nothing is known
  std::vector<int> above = {};          // of each switch the one above it, or kNone; no circles
  std::vector<std::string> names = {};  // of each switch

  bool known() const { return !leaf_of.empty(); }
  int switches() const { return static_cast<int>(above.size()); }
  bool below(int node, int of) const;
  // 0: below the same leaf switch; else the levels that a message climbs until it meets a switch that both hang below,
  // or those that are known where there is none. 0 where nothing is known.
  int distance(int a, int b) const;
};

// "below one leaf switch", "1 level up".
std::string distance_text(int distance);

}  // namespace ms::net
