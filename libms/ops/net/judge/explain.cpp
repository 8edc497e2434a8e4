#include "net/judge/explain.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace ms::net {
namespace {

constexpr double kShare = 0.6;  // of a node's ways
constexpr double kMost = 0.8;   // of a switch's

// Returns the probability of at least `bad` of `of` independent events, each with this one.
double binomial_tail(int bad, int of, double probability) {
  if (probability >= 1) return 1;
  double tail = 0;
  for (int i = bad; i <= of; ++i) {
    tail += std::exp(std::lgamma(of + 1.0) - std::lgamma(i + 1.0) - std::lgamma(of - i + 1.0) +
                     i * std::log(probability) + (of - i) * std::log1p(-probability));
  }
  return tail;
}

struct Count {
  int bad = 0, of = 0;
  double chances = 0;  // the sum
  void add(const Ways::Cell& cell) {
    if (cell.measured == 0) return;
    ++of;
    chances += cell.chance;
    if (cell.is_bad()) ++bad;
  }
  void add(const Count& count) {
    bad += count.bad;
    of += count.of;
    chances += count.chances;
  }
  // Returns whether one of so many like this is hardly ever this bad by chance. Unequal chances are as likely together
  // as their mean, or less.
  bool is_no_chance(int candidates) const { return candidates * binomial_tail(bad, of, chances / of) <= kMostChance; }
  bool speaks(int candidates) const { return bad >= 2 && bad >= kShare * of && is_no_chance(candidates); }
};

class Search {
 public:
  Search(const Ways& ways, const Layout& layout)
      : ways_(ways), layout_(layout), out_(static_cast<std::size_t>(ways.nodes())), in_(out_) {}

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
           std::ranges::any_of(bad_switches_, [&](int s) { return layout_.below(from, s) != layout_.below(to, s); });
  }
  int leaf(int node) const { return layout_.leaf_of[static_cast<std::size_t>(node)]; }

  // The leaf switches below one, as marks; those of the same size that mark the same are one switch for us.
  using Marks = std::vector<bool>;
  struct Group {
    int top = 0;
    Marks leaves;
    int nodes = 0;
  };
  std::vector<Group> candidates() const {
    const auto n = static_cast<std::size_t>(layout_.switches());
    std::vector<int> nodes_at(n);
    for (const int leaf : layout_.leaf_of) ++nodes_at[static_cast<std::size_t>(leaf)];
    std::vector<Group> groups;
    for (int s = 0; s < layout_.switches(); ++s) groups.push_back({.top = s, .leaves = Marks(n), .nodes = 0});
    for (std::size_t leaf = 0; leaf < n; ++leaf) {
      if (nodes_at[leaf] == 0) continue;
      for (int s = static_cast<int>(leaf); s != Layout::kNone; s = layout_.above[static_cast<std::size_t>(s)]) {
        groups[static_cast<std::size_t>(s)].leaves[leaf] = true;
        groups[static_cast<std::size_t>(s)].nodes += nodes_at[leaf];
      }
    }
    std::set<Marks> seen;
    std::erase_if(groups, [&](const Group& group) { return !seen.insert(group.leaves).second; });
    return groups;
  }

  // A switch whose nodes' ways to all others are bad, while those among them are not.
  void groups() {
    if (!layout_.known()) return;
    const auto n = static_cast<std::size_t>(layout_.switches());
    const std::vector<Group> groups = candidates();
    while (true) {
      std::vector<std::vector<Count>> between(n, std::vector<Count>(n));  // leaf switches
      for (int a = 0; a < ways_.nodes(); ++a)
        for (int b = 0; b < ways_.nodes(); ++b)
          if (a != b && ways_.at(a, b).measured > 0 && !explained(a, b))
            between[static_cast<std::size_t>(leaf(a))][static_cast<std::size_t>(leaf(b))].add(ways_.at(a, b));
      const Group* worst = nullptr;
      Count worst_count;
      for (const Group& group : groups) {
        Count across, inside;
        for (std::size_t g = 0; g < n; ++g) {
          for (std::size_t h = 0; h < n; ++h) {
            if (!group.leaves[g] && !group.leaves[h]) continue;
            Count& count = group.leaves[g] && group.leaves[h] ? inside : across;
            count.add(between[g][h]);
          }
        }
        if (group.nodes < 2 || across.bad < 4 || across.bad < kMost * across.of ||
            inside.bad > (1 - kMost) * inside.of || !across.is_no_chance(static_cast<int>(groups.size())))
          continue;
        if (worst == nullptr || across.bad > worst_count.bad) worst = &group, worst_count = across;
      }
      if (worst == nullptr) return;
      // The symptom is symmetric: a group of exactly the remaining nodes fits as well, so the finding names it, too.
      const auto rest = std::ranges::find_if(groups, [&](const Group& group) {
        return group.nodes == ways_.nodes() - worst->nodes && group.nodes > 0 && are_apart(group, *worst);
      });
      found_.push_back({.kind = Kind::group,
                        .a = worst->top,
                        .other = rest == groups.end() ? -1 : rest->top,
                        .bad = worst_count.bad,
                        .of = worst_count.of});
      bad_switches_.push_back(worst->top);
    }
  }
  static bool are_apart(const Group& a, const Group& b) {
    for (std::size_t leaf = 0; leaf < a.leaves.size(); ++leaf)
      if (a.leaves[leaf] && b.leaves[leaf]) return false;
    return true;
  }

  bool worst_node() {
    const int candidates = 2 * ways_.nodes();  // each sends and receives
    Culprit worst;
    for (int node = 0; node < ways_.nodes(); ++node) {
      Count out, in;
      for (int peer = 0; peer < ways_.nodes(); ++peer) {
        if (peer == node) continue;
        if (!explained(node, peer)) out.add(ways_.at(node, peer));
        if (!explained(peer, node)) in.add(ways_.at(peer, node));
      }
      const bool sends_badly = out.speaks(candidates), receives_badly = in.speaks(candidates);
      const Culprit here{.kind = sends_badly && receives_badly ? Kind::node
                                 : sends_badly                 ? Kind::sending
                                                               : Kind::receiving,
                         .a = node,
                         .bad = (sends_badly ? out.bad : 0) + (receives_badly ? in.bad : 0),
                         .of = (sends_badly ? out.of : 0) + (receives_badly ? in.of : 0)};
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
    if (!layout_.known()) return;
    std::map<int, int> members, faulty;
    for (const int g : layout_.leaf_of) ++members[g];
    for (const Culprit& culprit : found_)
      if (culprit.kind == Kind::node) ++faulty[leaf(culprit.a)];
    for (const auto& [g, count] : faulty) {
      if (count < 2 || count != members[g] || members.size() < 2) continue;
      Culprit whole{.kind = Kind::group, .a = g};
      std::erase_if(found_, [&, g = g](const Culprit& culprit) {
        if (culprit.kind != Kind::node || leaf(culprit.a) != g) return false;
        whole.bad += culprit.bad;
        whole.of += culprit.of;
        return true;
      });
      found_.push_back(whole);
    }
  }

  void pairs() {
    const int measured = ways_.measured();
    const auto bad = [&](int a, int b) {
      const Ways::Cell& cell = ways_.at(a, b);  // never for a single measurement
      return cell.is_decided() && cell.is_bad() && cell.is_no_chance(measured) && !explained(a, b);
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
  const Layout& layout_;
  std::vector<bool> out_, in_;  // nodes at fault in sending, in receiving
  std::vector<int> bad_switches_;
  std::vector<Culprit> found_;
};

}  // namespace

int Ways::Cell::most_tests(int ways) const {
  constexpr double kMostAlike = 12;
  const bool by_chance = is_bad() && !is_no_chance(ways);
  return by_chance && ways * std::pow(chance, kMostAlike / measured) <= kMostChance ? static_cast<int>(kMostAlike)
                                                                                    : kMeasurements;
}

int Ways::measured() const {
  return static_cast<int>(std::ranges::count_if(cells_, [](const Cell& cell) { return cell.measured > 0; }));
}

std::vector<Culprit> explain(const Ways& ways, const Layout& layout) { return Search(ways, layout).run(); }

}  // namespace ms::net
