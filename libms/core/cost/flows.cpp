#include "cost/flows.h"

#include <algorithm>

namespace ms::cost {

std::uint32_t Flows::start(double begin_s, double seconds, std::span<const std::uint32_t> resources) {
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(flows_.size()));
    flows_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Flow& flow = flows_[index];
  flow.left_s = seconds;
  flow.share = 0;
  flow.resources = resources;
  push(begin_s, index, true);
  return index;
}

void Flows::push(double at_s, std::uint32_t flow, bool begins) {
  due_.push({at_s, pushed_++, flow, ++flows_[flow].version, begins});
}

std::optional<Flows::End> Flows::next() {
  while (!due_.empty()) {
    const Due due = due_.top();
    due_.pop();
    Flow& flow = flows_[due.flow];
    if (due.version != flow.version) continue;  // it has become faster or slower since
    if (due.begins && flow.left_s > 0) {
      flow.since_s = due.at_s;
      for (const std::uint32_t resource : flow.resources) on_[resource].push_back(due.flow);
      share_anew(due.flow, due.at_s);
      if (flow.resources.empty()) push(due.at_s + flow.left_s, due.flow, false);
      continue;
    }
    if (!due.begins) {
      for (const std::uint32_t resource : flow.resources) std::erase(on_[resource], due.flow);
      share_anew(due.flow, due.at_s);
    }
    free_.push_back(due.flow);
    return End{due.flow, due.at_s};
  }
  return std::nullopt;
}

// Recomputes the shares of all flows that share a resource with this one, itself included while it is under way.
void Flows::share_anew(std::uint32_t index, double now_s) {
  touched_.clear();
  for (const std::uint32_t resource : flows_[index].resources)
    touched_.insert(touched_.end(), on_[resource].begin(), on_[resource].end());
  if (touched_.size() > 1) {
    std::ranges::sort(touched_);
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
  }
  for (const std::uint32_t other : touched_) {
    Flow& flow = flows_[other];
    double share = 1;
    for (const std::uint32_t resource : flow.resources)
      share = std::min(share, capacity_[resource] / static_cast<double>(on_[resource].size()));
    if (share == flow.share) continue;
    flow.left_s = std::max(0.0, flow.left_s - (now_s - flow.since_s) * flow.share);
    flow.since_s = now_s;
    flow.share = share;
    push(now_s + flow.left_s / share, other, false);
  }
}

}  // namespace ms::cost
