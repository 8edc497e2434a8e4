// The state that ranks as threads share: the rendezvous of their groups, the deadline monitor, the first cause.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/exchange.h"
#include "comm/first_cause.h"
#include "comm/issue_counts.h"
#include "comm/store_memory.h"
#include "comm/thread_rendezvous.h"
#include "comm/thread_world.h"
#include "comm/wake_timer.h"

namespace ms::comm {

class ThreadHub::Impl {
 public:
  Impl(int size, std::chrono::milliseconds deadline, Link link)
      : size_(size),
        link_(link),
        issue_counts_(static_cast<std::size_t>(size)),
        table_(cause_),
        closing_(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) patience_.emplace_back(deadline);
    if (link.delays()) timer_.emplace();
    monitor_ = std::jthread([this](const std::stop_token& stop) { watch_deadlines(stop); });
  }

  int size() const { return size_; }
  KeyValueTable& table() { return table_; }
  FirstCause& cause() { return cause_; }
  IssueCounts& issue_counts(int rank) { return issue_counts_[static_cast<std::size_t>(rank)]; }
  Patience& patience(int rank) { return patience_[static_cast<std::size_t>(rank)]; }
  std::shared_ptr<GroupState> group(const Group& group);
  // Joins operation `request` as `member`. Throws if the members disagree or the world has stopped.
  std::shared_ptr<Rendezvous> arrive(GroupState& state, int member, const Request& request,
                                     const tensor::CpuWaker& waker, tensor::PeerMemory& memory);
  // Returns true when the member has done its work. Throws the error that the rendezvous or the world failed with.
  bool proceed(GroupState& state, Rendezvous& rendezvous, int member, int& finished, tensor::PeerMemory& memory);
  // Returns true when the simulated transfer time is over, so that a member that has done its work may leave; otherwise
  // wakes it then.
  bool delivered(const Rendezvous& rendezvous, const tensor::CpuWaker& waker);
  // Monitors the deadline of an exchange of `rank` that another backend carries, as ExchangeService::watch() says.
  void watch(int rank, std::shared_ptr<Exchange> exchange);
  void abort(int rank, const Error& error) noexcept;
  void close(int rank);

 private:
  void wake_all(const Rendezvous& rendezvous, int but) const {
    for (std::size_t k = 0; k < rendezvous.wakers.size(); ++k) {
      if (rendezvous.wakers[k] && static_cast<int>(k) != but) rendezvous.wakers[k]->wake();
    }
  }
  struct Watched {
    int rank;
    std::shared_ptr<Exchange> exchange;
  };

  std::vector<std::shared_ptr<GroupState>> groups();
  std::vector<Watched> watched();  // those that are not done
  // Fails operations past their deadline; returns when to check again.
  std::chrono::steady_clock::time_point fail_expired();
  // Asks who is at fault for `rank` having waited too long in an operation.
  Inquiry inquire(int rank, std::chrono::nanoseconds waited, const Wait& wait, const std::vector<int>& missing);
  // Returns whether the wait of `rank` is no hang: peers are busy, or were a moment ago.
  bool is_excused(int rank, const Inquiry& inquiry, std::chrono::steady_clock::time_point now);
  // Reports the waits of a rank; those younger than `old` are recent.
  WaitReport report_for(int rank, const Wait& wait, std::chrono::nanoseconds old);
  void fail(GroupState& state, Rendezvous& rendezvous, const Error& error);
  void watch_deadlines(const std::stop_token& stop);

  const int size_;
  std::deque<Patience> patience_;  // by rank
  const Link link_;
  FirstCause cause_;
  std::vector<IssueCounts> issue_counts_;  // by rank
  KeyValueTable table_;
  std::mutex mutex_;  // guards groups_, watched_, closing_
  std::map<int, std::shared_ptr<GroupState>> groups_;
  std::vector<Watched> watched_;
  std::vector<bool> closing_;
  std::condition_variable closed_;
  std::mutex monitor_mutex_;
  std::condition_variable_any monitor_wakes_;
  std::chrono::steady_clock::time_point here_since_;  // this process was stopped until then; of the monitor
  std::map<int, std::optional<std::chrono::steady_clock::time_point>>
      busy_;                        // the last time that a peer was, by who waited; likewise
  std::optional<WakeTimer> timer_;  // absent: transfers take no extra time
  std::jthread monitor_;            // last: it uses the rest
};

}  // namespace ms::comm
