#include "loan/nodes.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace ms::loan {

Nodes::Nodes(int train_nodes, int inference_nodes, int gpus_per_node)
    : gpus_per_node_(gpus_per_node), nodes_(static_cast<std::size_t>(train_nodes + inference_nodes)) {
  const auto sizes = static_cast<std::size_t>(gpus_per_node) + 1;
  by_free_ = by_room_ = {.own = std::vector<std::set<int>>(sizes), .loaned = std::vector<std::set<int>>(sizes)};
  for (int id = 0; id < train_nodes + inference_nodes; ++id) {
    Node& node = nodes_[static_cast<std::size_t>(id)];
    node.free = gpus_per_node;
    if (id < train_nodes) {
      node.state = State::own;
      enter(id);
    } else {
      idle_inference_.insert(id);
    }
  }
}

void Nodes::enter(int id) {
  const Node& node = nodes_[static_cast<std::size_t>(id)];
  if (!usable(node)) return;
  const bool own = node.state == State::own;
  const auto room = static_cast<std::size_t>(node.free + node.extra);
  (own ? by_free_.own : by_free_.loaned)[static_cast<std::size_t>(node.free)].insert(id);
  (own ? by_room_.own : by_room_.loaned)[room].insert(id);
  free_gpus_ += node.free;
}

void Nodes::leave(int id) {
  const Node& node = nodes_[static_cast<std::size_t>(id)];
  if (!usable(node)) return;
  const bool own = node.state == State::own;
  const auto room = static_cast<std::size_t>(node.free + node.extra);
  (own ? by_free_.own : by_free_.loaned)[static_cast<std::size_t>(node.free)].erase(id);
  (own ? by_room_.own : by_room_.loaned)[room].erase(id);
  free_gpus_ -= node.free;
}

std::optional<Placement> Nodes::fit_in(const std::vector<std::set<int>>& first,
                                       const std::vector<std::set<int>>& second, int gpus, int gpus_per_node) {
  const auto whole = static_cast<std::size_t>(gpus / gpus_per_node);
  const int rest = gpus % gpus_per_node;
  Placement placement;
  for (const auto* sets : {&first, &second}) {
    const std::set<int>& full = sets->back();
    for (auto node = full.begin(); node != full.end() && placement.size() < whole; ++node) {
      placement.push_back({.node = *node, .gpus = gpus_per_node});
    }
  }
  if (placement.size() < whole) return std::nullopt;
  if (rest == 0) return placement;
  const auto taken = [&](int node) {
    return std::any_of(placement.begin(), placement.end(), [&](const Part& part) { return part.node == node; });
  };
  for (const auto* sets : {&first, &second}) {
    for (auto size = static_cast<std::size_t>(rest); size < sets->size(); ++size) {
      for (const int node : (*sets)[size]) {
        if (taken(node)) continue;
        placement.push_back({.node = node, .gpus = rest});
        return placement;
      }
    }
  }
  return std::nullopt;
}

std::optional<Placement> Nodes::fit(int gpus, bool over_extra) const {
  const Index& index = over_extra ? by_room_ : by_free_;
  return fit_in(index.own, index.loaned, gpus, gpus_per_node_);
}

std::optional<Placement> Nodes::fit_extra(int gpus) const {
  return fit_in(by_free_.loaned, by_free_.own, gpus, gpus_per_node_);
}

int Nodes::extra_over(const Part& part) const {
  return std::max(0, part.gpus - nodes_[static_cast<std::size_t>(part.node)].free);
}

void Nodes::take(int job, const Placement& placement, bool extra) {
  for (const Part& part : placement) {
    Node& node = nodes_[static_cast<std::size_t>(part.node)];
    MS_ASSERT(part.gpus <= node.free, "node {} has {} of {} GPUs free", part.node, node.free, part.gpus);
    leave(part.node);
    node.free -= part.gpus;
    if (extra) node.extra += part.gpus;
    node.uses.push_back({.job = job, .gpus = part.gpus, .extra = extra});
    enter(part.node);
    busy_gpus_ += part.gpus;
    if (extra) extra_gpus_ += part.gpus;
    if (node.state != State::own) loaned_busy_gpus_ += part.gpus;
  }
}

void Nodes::release(int job, const Placement& placement, bool extra) {
  for (const Part& part : placement) {
    Node& node = nodes_[static_cast<std::size_t>(part.node)];
    const auto use = std::find_if(node.uses.begin(), node.uses.end(), [&](const Use& each) {
      return each.job == job && each.extra == extra && each.gpus == part.gpus;
    });
    MS_ASSERT(use != node.uses.end(), "job {} has no {} GPUs on node {}", job, part.gpus, part.node);
    leave(part.node);
    node.free += part.gpus;
    if (extra) node.extra -= part.gpus;
    node.uses.erase(use);
    enter(part.node);
    busy_gpus_ -= part.gpus;
    if (extra) extra_gpus_ -= part.gpus;
    if (node.state != State::own) loaned_busy_gpus_ -= part.gpus;
  }
}

int Nodes::lend(int count) {
  int lent = 0;
  for (; lent < count && !idle_inference_.empty(); ++lent) {
    const int id = *idle_inference_.begin();
    idle_inference_.erase(idle_inference_.begin());
    nodes_[static_cast<std::size_t>(id)].state = State::loaned;
    enter(id);
  }
  loaned_ += lent;
  return lent;
}

std::vector<LoanedNode> Nodes::on_loan(std::vector<int>& ids) const {
  std::vector<LoanedNode> nodes;
  std::map<int, int> index_of;
  ids.clear();
  for (std::size_t id = 0; id < nodes_.size(); ++id) {
    if (nodes_[id].state != State::loaned) continue;
    LoanedNode node{.id = static_cast<int>(id), .jobs = {}};
    for (const Use& use : nodes_[id].uses) {
      if (use.extra) continue;
      const auto [known, is_new] = index_of.try_emplace(use.job, static_cast<int>(ids.size()));
      if (is_new) ids.push_back(use.job);
      node.jobs.push_back(known->second);
    }
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<int> Nodes::extra_jobs(int id) const {
  std::vector<int> jobs;
  for (const Use& use : nodes_[static_cast<std::size_t>(id)].uses) {
    if (use.extra) jobs.push_back(use.job);
  }
  std::sort(jobs.begin(), jobs.end());
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  return jobs;
}

void Nodes::begin_return(int id) {
  Node& node = nodes_[static_cast<std::size_t>(id)];
  MS_ASSERT(node.state == State::loaned, "node {} is not on loan", id);
  leave(id);
  node.state = State::returning;
  --loaned_;
  ++returning_;
}

void Nodes::end_return(int id) {
  Node& node = nodes_[static_cast<std::size_t>(id)];
  MS_ASSERT(node.state == State::returning && node.uses.empty(), "node {} is not empty", id);
  node.state = State::inference;
  idle_inference_.insert(id);
  --returning_;
}

}  // namespace ms::loan
