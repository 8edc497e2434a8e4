// The store behind both worlds: values by (rank, name) that have arrived in this process. Ranks that are threads share
// one board; with MPI every process has one, filled by messages.
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

class Board {
 public:
  explicit Board(const FirstCause& cause) : cause_(cause) {}
  void post(int rank, std::string key, std::string value);
  // Throws Error("comm.store") at the deadline, the cause's error where the world stopped.
  std::string get(int reader, int rank, std::string_view key, std::chrono::milliseconds deadline);
  // The cause was set: nobody waits any longer.
  void stop();

 private:
  const FirstCause& cause_;
  std::mutex mutex_;  // guards values_
  std::condition_variable changed_;
  std::map<std::pair<int, std::string>, std::string, std::less<>> values_;
};

// One rank's view of the board. `publish` makes this rank's values visible, to itself as well.
class BoardStore final : public Store {
 public:
  using Values = std::vector<std::pair<std::string, std::string>>;
  BoardStore(int rank, Board& board, std::function<void(Values)> publish)
      : rank_(rank), board_(board), publish_(std::move(publish)) {}
  void put(std::string_view key, std::string_view value) override {
    check_publishable(key, value);
    pending_.emplace_back(key, value);
  }
  void commit() override { publish_(std::exchange(pending_, {})); }
  std::string get(int rank, std::string_view key, std::chrono::milliseconds deadline) override {
    return board_.get(rank_, rank, key, deadline);
  }

 private:
  int rank_;
  Board& board_;
  std::function<void(Values)> publish_;
  Values pending_;
};

}  // namespace ms::comm
