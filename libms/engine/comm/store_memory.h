// The key-value store in this process's memory. Ranks as threads share one table; with MPI every process has one,
// filled by control messages.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/first_cause.h"
#include "comm/store.h"

namespace ms::comm {

class KeyValueTable {
 public:
  explicit KeyValueTable(const FirstCause& cause) : cause_(cause) {}
  void post(int rank, std::string key, std::string value);
  // Returns the value, waiting for it. Throws Error("comm.store") at the deadline, or the world's error if it stopped.
  std::string get(int reader, int rank, std::string_view key, std::chrono::milliseconds deadline);
  // Wakes all readers; called after the cause was set.
  void stop();

 private:
  const FirstCause& cause_;
  std::mutex mutex_;  // guards values_
  std::condition_variable changed_;
  std::map<std::pair<int, std::string>, std::string, std::less<>> values_;
};

// One rank's view of the table. `publish` makes this rank's values visible to all ranks, itself included.
class MemoryStore final : public Store {
 public:
  using Values = std::vector<std::pair<std::string, std::string>>;
  MemoryStore(int rank, KeyValueTable& table, std::function<void(Values)> publish)
      : rank_(rank), table_(table), publish_(std::move(publish)) {}
  void put(std::string_view key, std::string_view value) override {
    check_publishable(key, value);
    pending_.emplace_back(key, value);
  }
  void commit() override { publish_(std::exchange(pending_, {})); }
  std::string get(int rank, std::string_view key, std::chrono::milliseconds deadline) override {
    return table_.get(rank_, rank, key, deadline);
  }

 private:
  int rank_;
  KeyValueTable& table_;
  std::function<void(Values)> publish_;
  Values pending_;
};

}  // namespace ms::comm
