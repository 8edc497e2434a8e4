// The number of operations that the host of one rank has issued in each group, whether or not its streams have reached
// them. Thread-safe: communicators count, and the search for a rank at fault reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace ms::comm {

class IssueCounts {
 public:
  using Counter = std::atomic<std::uint64_t>;

  // Returns the counter of a group; its communicator stores there how many operations it has issued.
  std::shared_ptr<Counter> counter(int group) {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Counter>& counter = counters_[group];
    if (!counter) counter = std::make_shared<Counter>(0);
    return counter;
  }
  bool has_issued(int group, std::uint64_t sequence) const {
    std::lock_guard lock(mutex_);
    const auto found = counters_.find(group);
    return found != counters_.end() && found->second->load(std::memory_order_relaxed) > sequence;
  }

 private:
  mutable std::mutex mutex_;
  std::map<int, std::shared_ptr<Counter>> counters_;
};

}  // namespace ms::comm
