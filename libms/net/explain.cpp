#include "net/explain.h"

#include <algorithm>
#include <map>
#include <set>

namespace ms::net {
namespace {

constexpr double kShare = 0.6;  // of a node's ways
constexpr double kMost = 0.8;   // of a group's

struct Count {
  int bad = 0, of = 0;
  void add(const Ways::Cell& cell) {
    if (cell.measured == 0) return;
    ++of;
    if (cell.is_bad()) ++bad;
  }
  bool speaks() const { return bad >= 2 && bad >= kShare * of; }
};

class Search {
 public:
  Search(const Ways& ways, const std::vector<int>& group_of)
      : ways_(ways), group_of_(group_of), out_(static_cast<std::size_t>(ways.nodes())), in_(out_) {}

  std::vector<Culprit> run() {
    groups();
    while (worst_node()) {}
    whole_groups();
    pairs();
    return std::move(found_);
  }

 private:
  bool explained(int from, int to) const {
    return out_[static_cast<std::size_t>(from)] || in_[static_cast<std::size_t>(to)] ||
           (!group_of_.empty() && group(from) != group(to) &&
            (bad_groups_.contains(group(from)) || bad_groups_.contains(group(to))));
  }
  int group(int node) const { return group_of_[static_cast<std::size_t>(node)]; }

  static int other_of(const std::vector<int>& members, int group) {
    for (std::size_t g = 0; g < members.size(); ++g)
      if (members[g] > 0 && static_cast<int>(g) != group) return static_cast<int>(g);
    return -1;
  }

  // A group whose ways to all others are bad, while they are not among themselves, nor the others' among each other.
  void groups() {
    if (group_of_.empty()) return;
    const int groups = 1 + *std::ranges::max_element(group_of_);
    std::vector<std::vector<Count>> between(static_cast<std::size_t>(groups),
                                            std::vector<Count>(static_cast<std::size_t>(groups)));
    std::vector<int> members(static_cast<std::size_t>(groups));
    for (const int g : group_of_) ++members[static_cast<std::size_t>(g)];
    for (int a = 0; a < ways_.nodes(); ++a)
      for (int b = 0; b < ways_.nodes(); ++b)
        if (a != b) between[static_cast<std::size_t>(group(a))][static_cast<std::size_t>(group(b))].add(ways_.at(a, b));
    const auto across = [&](std::size_t g) {
      Count count;
      for (std::size_t h = 0; h < between.size(); ++h) {
        if (h == g || bad_groups_.contains(static_cast<int>(h))) continue;
        for (const Count& c : {between[g][h], between[h][g]}) {
          count.bad += c.bad;
          count.of += c.of;
        }
      }
      return count;
    };
    while (true) {
      int worst = -1;
      Count worst_count;
      for (std::size_t g = 0; g < between.size(); ++g) {
        const Count count = across(g), inside = between[g][g];
        if (bad_groups_.contains(static_cast<int>(g)) || members[g] < 2 || count.bad < 4 ||
            count.bad < kMost * count.of || inside.bad > (1 - kMost) * inside.of)
          continue;
        if (worst < 0 || count.bad > worst_count.bad) worst = static_cast<int>(g), worst_count = count;
      }
      if (worst < 0) return;
      const bool two = std::ranges::count_if(members, [](int count) { return count > 0; }) == 2;
      found_.push_back({.kind = Kind::group,
                        .a = worst,
                        .other = two ? other_of(members, worst) : -1,
                        .bad = worst_count.bad,
                        .of = worst_count.of});
      bad_groups_.insert(worst);
      if (two) return;
    }
  }

  bool worst_node() {
    Culprit worst;
    for (int node = 0; node < ways_.nodes(); ++node) {
      Count out, in;
      for (int peer = 0; peer < ways_.nodes(); ++peer) {
        if (peer == node) continue;
        if (!explained(node, peer)) out.add(ways_.at(node, peer));
        if (!explained(peer, node)) in.add(ways_.at(peer, node));
      }
      const Culprit here{.kind = out.speaks() && in.speaks() ? Kind::node
                                 : out.speaks()              ? Kind::sending
                                                             : Kind::receiving,
                         .a = node,
                         .bad = (out.speaks() ? out.bad : 0) + (in.speaks() ? in.bad : 0),
                         .of = (out.speaks() ? out.of : 0) + (in.speaks() ? in.of : 0)};
      if (here.bad > worst.bad || (here.bad == worst.bad && here.of < worst.of)) worst = here;
    }
    if (worst.bad == 0) return false;
    if (worst.kind != Kind::receiving) out_[static_cast<std::size_t>(worst.a)] = true;
    if (worst.kind != Kind::sending) in_[static_cast<std::size_t>(worst.a)] = true;
    // The one direction was found before, and the other only now.
    for (Culprit& before : found_) {
      if (before.kind != Kind::group && before.a == worst.a) {
        before = {.kind = Kind::node, .a = worst.a, .bad = before.bad + worst.bad, .of = before.of + worst.of};
        return true;
      }
    }
    found_.push_back(worst);
    return true;
  }

  // All nodes below a switch: it is more likely that.
  void whole_groups() {
    if (group_of_.empty()) return;
    std::map<int, int> members, faulty;
    for (const int g : group_of_) ++members[g];
    for (const Culprit& culprit : found_)
      if (culprit.kind == Kind::node) ++faulty[group(culprit.a)];
    for (const auto& [g, count] : faulty) {
      if (count < 2 || count != members[g] || members.size() < 2) continue;
      Culprit whole{.kind = Kind::group, .a = g};
      std::erase_if(found_, [&, g = g](const Culprit& culprit) {
        if (culprit.kind != Kind::node || group(culprit.a) != g) return false;
        whole.bad += culprit.bad;
        whole.of += culprit.of;
        return true;
      });
      found_.push_back(whole);
    }
  }

  void pairs() {
    const auto bad = [&](int a, int b) {
      const Ways::Cell& cell = ways_.at(a, b);
      return cell.bad >= 2 && cell.is_bad() && !explained(a, b);  // never for a single measurement
    };
    for (int a = 0; a < ways_.nodes(); ++a) {
      for (int b = a + 1; b < ways_.nodes(); ++b) {
        const Ways::Cell &there = ways_.at(a, b), &back = ways_.at(b, a);
        if (bad(a, b) && bad(b, a)) {
          found_.push_back(
              {.kind = Kind::link, .a = a, .b = b, .bad = there.bad + back.bad, .of = there.measured + back.measured});
        } else if (bad(a, b)) {
          found_.push_back({.kind = Kind::direction, .a = a, .b = b, .bad = there.bad, .of = there.measured});
        } else if (bad(b, a)) {
          found_.push_back({.kind = Kind::direction, .a = b, .b = a, .bad = back.bad, .of = back.measured});
        }
      }
    }
  }

  const Ways& ways_;
  const std::vector<int>& group_of_;
  std::vector<bool> out_, in_;  // nodes at fault in sending, in receiving
  std::set<int> bad_groups_;
  std::vector<Culprit> found_;
};

}  // namespace

std::vector<Culprit> explain(const Ways& ways, const std::vector<int>& group_of) {
  return Search(ways, group_of).run();
}

}  // namespace ms::net
