// The jobs that wait in a replay, in the order of their scheduler: first come, or least estimated work left. Jobs of as
// many GPUs queue together, so that the next one that fits is found among a few heads.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace ms::loan {

struct Waiting {
  double key = 0;  // the smallest is first
  int job = 0;
  auto operator<=>(const Waiting&) const = default;
};

class WaitingJobs {
 public:
  bool empty() const { return queues_.empty(); }
  void add(int gpus, Waiting waiting) { queues_[gpus].insert(waiting); }
  void remove(int gpus, const Waiting& waiting) {
    const auto queue = queues_.find(gpus);
    queue->second.erase(waiting);
    if (queue->second.empty()) queues_.erase(queue);
  }

  // The first of all whose number of GPUs is none of `without`.
  std::optional<std::pair<int, Waiting>> first(const std::set<int>& without = {}) const {
    std::optional<std::pair<int, Waiting>> best;
    for (const auto& [gpus, queue] : queues_) {
      if (without.contains(gpus)) continue;
      if (!best || *queue.begin() < best->second) best = {gpus, *queue.begin()};
    }
    return best;
  }

  // The first `count` of all, in their order.
  std::vector<std::pair<int, Waiting>> front(std::size_t count) const {
    using Head = std::pair<std::set<Waiting>::const_iterator, const std::pair<const int, std::set<Waiting>>*>;
    std::vector<Head> heads;
    for (const auto& queue : queues_) heads.emplace_back(queue.second.begin(), &queue);
    std::vector<std::pair<int, Waiting>> jobs;
    while (jobs.size() < count) {
      Head* best = nullptr;
      for (Head& head : heads) {
        if (head.first == head.second->second.end()) continue;
        if (best == nullptr || *head.first < *best->first) best = &head;
      }
      if (best == nullptr) break;
      jobs.emplace_back(best->second->first, *best->first++);
    }
    return jobs;
  }

 private:
  std::map<int, std::set<Waiting>> queues_;  // by GPUs; none is empty
};

}  // namespace ms::loan
