// What the ranks of a world of threads share: the meetings of its groups, who watches their deadlines, the first cause.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/board.h"
#include "comm/first_cause.h"
#include "comm/issue_counts.h"
#include "comm/thread_meeting.h"
#include "comm/thread_world.h"
#include "comm/wake_timer.h"

namespace ms::comm {

class ThreadHub::Impl {
 public:
  Impl(int size, std::chrono::milliseconds deadline, Link link)
      : size_(size),
        deadline_(deadline),
        link_(link),
        issue_counts_(static_cast<std::size_t>(size)),
        board_(cause_),
        closing_(static_cast<std::size_t>(size)) {
    if (link.delays()) timer_.emplace();
    monitor_ = std::jthread([this](const std::stop_token& stop) { watch_deadlines(stop); });
  }

  int size() const { return size_; }
  Board& board() { return board_; }
  const FirstCause& cause() const { return cause_; }
  IssueCounts& issue_counts(int rank) { return issue_counts_[static_cast<std::size_t>(rank)]; }
  std::shared_ptr<GroupState> group(const Group& group);
  // Joins operation `request` as `member`. Throws where the members disagree or the world stopped.
  std::shared_ptr<Meeting> arrive(GroupState& state, int member, const Request& request, const tensor::CpuWaker& waker,
                                  tensor::PeerMemory& memory);
  // True when the member has done its work. Throws what the meeting or the world failed with.
  bool proceed(GroupState& state, Meeting& meeting, int member, int& finished, tensor::PeerMemory& memory);
  // True when the messages have had their time, so that a member that has done its work may leave; else it is woken
  // then.
  bool delivered(const Meeting& meeting, const tensor::CpuWaker& waker);
  void abort(int rank, const Error& error) noexcept;
  void close(int rank);

 private:
  void wake_all(const Meeting& meeting, int but) const {
    for (std::size_t k = 0; k < meeting.wakers.size(); ++k) {
      if (meeting.wakers[k] && static_cast<int>(k) != but) meeting.wakers[k]->wake();
    }
  }
  std::vector<std::shared_ptr<GroupState>> groups();
  // Fails what is overdue; when to look again.
  std::chrono::steady_clock::time_point fail_overdue();
  // Why `rank` has waited in vain in this operation.
  Error verdict(int rank, std::chrono::steady_clock::time_point since, const Wait& wait,
                const std::vector<int>& missing);
  Account account_of(int rank, const Wait& wait);
  void fail(GroupState& state, Meeting& meeting, const Error& error);
  void watch_deadlines(const std::stop_token& stop);

  const int size_;
  const std::chrono::milliseconds deadline_;
  const Link link_;
  FirstCause cause_;
  std::vector<IssueCounts> issue_counts_;  // by rank
  Board board_;
  std::mutex mutex_;  // guards groups_, closing_
  std::map<int, std::shared_ptr<GroupState>> groups_;
  std::vector<bool> closing_;
  std::condition_variable closed_;
  std::mutex monitor_mutex_;
  std::condition_variable_any monitor_wakes_;
  std::optional<WakeTimer> timer_;  // absent: messages take no time
  std::jthread monitor_;            // last: it uses the rest
};

}  // namespace ms::comm
