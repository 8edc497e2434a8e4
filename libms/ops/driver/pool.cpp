#include "driver/pool.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace ms::driver {

std::string_view to_string(NodeRole role) {
  switch (role) {
    case NodeRole::spare: return "spare";
    case NodeRole::works: return "works";
    case NodeRole::suspect: return "suspect";
    case NodeRole::lost: return "lost";
    case NodeRole::unusable: return "unusable";
    case NodeRole::excluded: return "excluded";
  }
  return "excluded";
}

bool is_out_without_evidence(int strikes, std::size_t usable, std::size_t needed) {
  constexpr int kSecondStrike = 2;
  return strikes >= kSecondStrike && usable > needed;
}

Pool::Pool(std::vector<std::string> nodes, std::set<std::string> last, Segments segments)
    : order_(std::move(nodes)), last_(std::move(last)), segments_(std::move(segments)) {
  for (const std::string& node : order_) nodes_[node];
}

std::vector<std::string> Pool::ranked(NodeRole worst) const {
  std::vector<std::string> candidates;
  for (const std::string& name : order_) {
    if (nodes_.at(name).role <= worst) candidates.push_back(name);
  }
  const auto rank = [&](const std::string& name) {
    const Node& node = nodes_.at(name);
    const int kind = node.role == NodeRole::works   ? 0
                     : doubted_.contains(name)      ? 3
                     : node.role == NodeRole::spare ? 1
                                                    : 2;
    return std::tuple(kind, node.strikes, last_.contains(name));
  };
  // Spares behind those that worked, by their strikes; those that worked keep their places.
  std::ranges::stable_sort(candidates, [&](const std::string& a, const std::string& b) {
    const auto rank_a = rank(a), rank_b = rank(b);
    return (std::get<0>(rank_a) != 0 || std::get<0>(rank_b) != 0) && rank_a < rank_b;
  });
  return candidates;
}

std::vector<std::string> Pool::pick(std::vector<std::string> ranked, std::size_t most) const {
  if (segments_.nodes == 0) {
    ranked.resize(std::min(ranked.size(), most));
    return ranked;
  }
  using Segment = std::vector<std::string>;
  std::map<int, Segment> begun;  // by block
  std::vector<Segment> whole;    // in the order of the node that completes each
  for (std::string& name : ranked) {
    const auto block = segments_.block_of.find(name);
    if (block == segments_.block_of.end()) continue;
    Segment& segment = begun[block->second];
    segment.push_back(std::move(name));
    if (segment.size() == segments_.nodes) whole.push_back(std::exchange(segment, {}));
  }
  std::ranges::stable_sort(whole, {}, [&](const Segment& segment) {
    return std::ranges::count_if(segment, [&](const auto& name) { return nodes_.at(name).role != NodeRole::works; });
  });
  whole.resize(std::min(whole.size(), most / segments_.nodes));
  std::vector<std::string> picked;
  for (const Segment& segment : whole) picked.insert(picked.end(), segment.begin(), segment.end());
  return picked;
}

bool Pool::can_replace(const std::vector<std::string>& nodes) const {
  std::vector<std::string> others = ranked(NodeRole::works);
  std::erase_if(others, [&](const std::string& name) { return std::ranges::find(nodes, name) != nodes.end(); });
  const std::size_t needed = with(NodeRole::works).size();
  return pick(std::move(others), needed).size() == needed;
}

std::optional<std::vector<std::string>> Pool::choose(std::size_t most, std::size_t least) {
  const std::vector<std::string> picked = pick(ranked(NodeRole::suspect), most);
  if (picked.size() < std::max<std::size_t>(least, 1)) return std::nullopt;
  const std::set<std::string> taken(picked.begin(), picked.end());
  for (auto& [name, node] : nodes_) {
    if (node.role == NodeRole::works) node.role = NodeRole::spare;
  }
  std::vector<std::string> chosen;
  for (const std::string& name : order_) {
    if (!taken.contains(name)) continue;
    nodes_.at(name).role = NodeRole::works;
    nodes_.at(name).why.clear();
    chosen.push_back(name);
  }
  return chosen;
}

void Pool::strike(const std::string& name, NodeRole role, const std::string& why) {
  const auto node = nodes_.find(name);
  if (node == nodes_.end() || node->second.role == NodeRole::excluded) return;
  node->second.role = role;
  node->second.why = why;
  ++node->second.strikes;
}
void Pool::remember(const std::string& node, int strikes) {
  if (const auto found = nodes_.find(node); found != nodes_.end()) found->second.strikes = strikes;
}
void Pool::exclude(const std::string& node, const std::string& why) { strike(node, NodeRole::excluded, why); }
void Pool::lose(const std::string& node, const std::string& why) { strike(node, NodeRole::lost, why); }
void Pool::bar(const std::string& node, const std::string& why) { strike(node, NodeRole::unusable, why); }
void Pool::suspect(const std::string& node, const std::string& why) { strike(node, NodeRole::suspect, why); }

void Pool::say(const std::string& node, const std::string& why) {
  if (const auto found = nodes_.find(node); found != nodes_.end() && found->second.role == NodeRole::works)
    found->second.why = why;
}

void Pool::change(const std::string& name, NodeRole from, NodeRole to) {
  const auto node = nodes_.find(name);
  if (node != nodes_.end() && node->second.role == from) node->second.role = to;
}
void Pool::found(const std::string& node) { change(node, NodeRole::lost, NodeRole::suspect); }
void Pool::unbar(const std::string& node) { change(node, NodeRole::unusable, NodeRole::suspect); }
void Pool::readmit(const std::string& node) { change(node, NodeRole::excluded, NodeRole::suspect); }

void Pool::clear(const std::string& node) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || found->second.role != NodeRole::suspect) return;
  found->second.role = NodeRole::spare;
  found->second.why.clear();
}

void Pool::work(const std::vector<std::string>& nodes) {
  for (const std::string& name : nodes) {
    const auto node = nodes_.find(name);
    if (node != nodes_.end()) node->second.role = NodeRole::works;
  }
}

std::size_t Pool::usable() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(nodes_, [](const auto& entry) { return entry.second.role <= NodeRole::suspect; }));
}

std::vector<std::string> Pool::left_out() const {
  std::vector<std::string> texts;
  for (const std::string& name : order_) {
    const Node& node = nodes_.at(name);
    if (node.role <= NodeRole::suspect) continue;
    texts.push_back(fmt::format("{} is {} ({})", name, to_string(node.role), node.why));
  }
  return texts;
}

std::vector<std::string> Pool::with(NodeRole role) const {
  std::vector<std::string> names;
  for (const std::string& name : order_) {
    if (nodes_.at(name).role == role) names.push_back(name);
  }
  return names;
}

}  // namespace ms::driver
