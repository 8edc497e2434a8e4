// From which ways between nodes are bad to who is at fault: the fewest nodes, switches, links and directions that
// explain it. Pure.
#pragma once

#include <vector>

#include "net/judge/judge.h"
#include "net/judge/layout.h"

namespace ms::net {

// A fault is only named if chance explains any like it less often than that, however many ways or nodes were looked at.
inline constexpr double kMostChance = 0.005;

// How often each way was measured, and how often it was bad.
class Ways {
 public:
  explicit Ways(int nodes) : n_(nodes), cells_(static_cast<std::size_t>(nodes) * static_cast<std::size_t>(nodes)) {}
  struct Cell {
    int measured = 0, bad = 0;
    bool cleared = false;  // one good measurement outweighs all bad ones
    double chance = 1;     // the probability that a healthy way is bad in all of them
    bool is_bad() const { return !cleared && 2 * bad > measured; }
    // Nothing that is still measured changes it: of a pair that looks bad, most of so many measurements decide.
    static constexpr int kMeasurements = 5;
    // Returns whether one of so many ways is hardly ever this bad by chance.
    bool is_no_chance(int ways) const { return ways * chance <= kMostChance; }
    // Returns after how many tests of the pair there are no more: kMeasurements, or more where chance explains what was
    // measured, and so many alike would rule it out.
    int most_tests(int ways) const;
    bool is_decided() const { return bad == 0 || cleared || 2 * bad > kMeasurements || measured >= kMeasurements; }
  };
  int nodes() const { return n_; }
  Cell& at(int from, int to) { return cells_[index(from, to)]; }
  const Cell& at(int from, int to) const { return cells_[index(from, to)]; }
  // Returns the number of ways that were measured.
  int measured() const;

 private:
  std::size_t index(int from, int to) const {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(n_) + static_cast<std::size_t>(to);
  }
  int n_;
  std::vector<Cell> cells_;
};

enum class Kind { node, sending, receiving, group, link, direction };

// Who is at fault. node: in both directions; sending, receiving: in one; group: the nodes below a switch, towards all
// others; link: between a and b; direction: from a to b.
struct Culprit {
  Kind kind = Kind::node;
  int a = 0;       // the node; of a group the switch
  int b = -1;      // of link and direction
  int other = -1;  // of a group: the switch of all the other nodes; it may be that one as well
  int bad = 0;     // ways that say so
  int of = 0;      // ways that were measured and could
  bool operator==(const Culprit&) const = default;
};

// A node is only at fault if at least two of its peers say so, and three of five of those that are not at fault
// themselves; a switch, of whatever level, if four of five ways out of it are bad and few of those below it.
std::vector<Culprit> explain(const Ways& ways, const Layout& layout);

}  // namespace ms::net
