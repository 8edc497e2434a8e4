#include "health/commands/fleet.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/text.h"

namespace ms::health {
namespace {

constexpr std::size_t kLeastPeers = 3;
constexpr double kClear = 2.0 / 3;
// Firmware keeps a little more or less memory back on equal machines.
constexpr std::string_view kMemory = "memory.mib";
constexpr double kMemoryTolerance = 0.01;
// The attributes that make nodes peers.
constexpr std::string_view kKind[] = {"machine", "cpu.model", "gpu.models"};

const std::string& value_of(const NodeFacts& node, std::string_view attribute) {
  static const std::string kNone = kAbsent;
  const auto found = node.facts.find(std::string(attribute));
  return found == node.facts.end() ? kNone : found->second;
}

using Peers = std::vector<const NodeFacts*>;

bool is_clear(std::size_t agree, std::size_t of) {
  return agree >= kLeastPeers && static_cast<double>(agree) > kClear * static_cast<double>(of);
}

// Memory that is nearly that of most nodes counts as the same.
std::string middle_memory(const Peers& peers) {
  std::vector<double> values;
  for (const NodeFacts* node : peers) values.push_back(std::strtod(value_of(*node, kMemory).c_str(), nullptr));
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return fmt::format("{:.0f}", values[values.size() / 2]);
}
std::string compared_value(const NodeFacts& node, std::string_view attribute, const std::string& memory) {
  const std::string& value = value_of(node, attribute);
  if (attribute != kMemory) return value;
  const double is = std::strtod(value.c_str(), nullptr), middle = std::strtod(memory.c_str(), nullptr);
  return std::abs(is - middle) <= kMemoryTolerance * middle ? memory : value;
}

class Comparison {
 public:
  explicit Comparison(const FleetInput& input) : input_(input) {}

  Fleet run() {
    fleet_.asked = input_.nodes.size() + input_.silent.size();
    fleet_.answered = input_.nodes.size();
    fleet_.silent = input_.silent;
    for (const Peers& peers : kinds()) compare(peers);
    clocks();
    for (const NodeFacts& node : input_.nodes) {
      if (!node.state_known) {
        fleet_.tests_unknown.push_back(node.node);
      } else if (node.last_active_wall_s <= 0) {
        fleet_.untested.push_back(node.node);
      }
      Suspect suspect{.node = node.node, .findings = node.report.findings(), .drains = node.drains};
      if (!suspect.findings.empty() || suspect.drains > 0) fleet_.suspects.push_back(std::move(suspect));
    }
    std::stable_sort(fleet_.suspects.begin(), fleet_.suspects.end(),
                     [](const Suspect& a, const Suspect& b) { return badness(a) > badness(b); });
    return std::move(fleet_);
  }

 private:
  static std::pair<int, int> badness(const Suspect& suspect) {
    return {suspect.findings.empty() ? -1 : static_cast<int>(suspect.findings.front().severity), suspect.drains};
  }

  // The kinds with enough nodes. A few nodes beside one clear kind differ from it; other small kinds have no peers.
  std::vector<Peers> kinds() {
    std::map<std::vector<std::string>, Peers> by_kind;
    for (const NodeFacts& node : input_.nodes) {
      std::vector<std::string> key;
      for (const std::string_view attribute : kKind) key.push_back(value_of(node, attribute));
      by_kind[key].push_back(&node);
    }
    std::vector<Peers> large;
    Peers small;
    for (const auto& [key, peers] : by_kind) {
      fleet_.kinds.push_back(names(peers));
      if (peers.size() >= kLeastPeers) {
        large.push_back(peers);
      } else {
        small.insert(small.end(), peers.begin(), peers.end());
      }
    }
    const auto more = [](const auto& a, const auto& b) { return a.size() > b.size(); };
    std::stable_sort(fleet_.kinds.begin(), fleet_.kinds.end(), more);
    std::stable_sort(large.begin(), large.end(), more);
    if (large.size() == 1 && is_clear(large[0].size(), input_.nodes.size())) {
      Peers all = large[0];
      all.insert(all.end(), small.begin(), small.end());
      return {all};
    }
    fleet_.without_peers = names(small);
    return large;
  }
  static std::vector<std::string> names(const Peers& peers) {
    std::vector<std::string> names;
    for (const NodeFacts* node : peers) names.push_back(node->node);
    return names;
  }

  void compare(const Peers& peers) {
    std::set<std::string> attributes;
    for (const NodeFacts* node : peers)
      for (const auto& [attribute, value] : node->facts) attributes.insert(attribute);
    const std::string memory = middle_memory(peers);
    for (const std::string& attribute : attributes) {
      NodesByValue values;
      for (const NodeFacts* node : peers) values[compared_value(*node, attribute, memory)].push_back(node->node);
      if (values.size() == 1) continue;
      const auto usual = std::max_element(
          values.begin(), values.end(), [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
      const std::size_t agree = usual->second.size();
      if (!is_clear(agree, peers.size())) {
        fleet_.undecided.push_back({.attribute = attribute, .values = std::move(values)});
        continue;
      }
      Difference difference{.attribute = attribute, .usual = usual->first, .agree = agree, .of = peers.size()};
      values.erase(usual);
      difference.others = std::move(values);
      fleet_.differences.push_back(std::move(difference));
    }
  }

  // The asker's own clock may be off: what counts is the distance to the middle of all. A node is only accused where
  // even the nearest end of its range is too far.
  void clocks() {
    if (input_.clocks.size() < kLeastPeers) return;
    std::vector<double> middles;
    for (const auto& [node, range] : input_.clocks) middles.push_back((range.least_s + range.most_s) / 2);
    std::nth_element(middles.begin(), middles.begin() + std::ssize(middles) / 2, middles.end());
    const double middle = middles[middles.size() / 2];
    NodesByValue off;
    std::size_t num_off = 0;
    for (const auto& [node, range] : input_.clocks) {
      const double ahead = range.least_s - middle, behind = middle - range.most_s;
      const double distance = std::max(ahead, behind);
      if (distance <= input_.clock_limit_s) continue;
      ++num_off;
      off[fmt::format("{} {}", format_duration(distance), ahead > behind ? "ahead" : "behind")].push_back(node);
    }
    const std::size_t agree = input_.clocks.size() - num_off;
    if (off.empty() || !is_clear(agree, input_.clocks.size())) return;
    fleet_.differences.push_back({.attribute = "clock",
                                  .usual = fmt::format("within {}", format_duration(input_.clock_limit_s)),
                                  .agree = agree,
                                  .of = input_.clocks.size(),
                                  .others = std::move(off)});
  }

  const FleetInput& input_;
  Fleet fleet_;
};

}  // namespace

Fleet compare_fleet(const FleetInput& input) { return Comparison(input).run(); }

int Fleet::nagios_status() const {
  if (answered == 0) return 3;
  const bool critical = std::any_of(suspects.begin(), suspects.end(), [](const Suspect& suspect) {
    return !suspect.findings.empty() && suspect.findings.front().severity == Severity::critical;
  });
  return critical ? 2 : differences.empty() && suspects.empty() && silent.empty() ? 0 : 1;
}

}  // namespace ms::health
