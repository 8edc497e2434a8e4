#include "comm/wake_timer.h"

#include <sys/prctl.h>

#include <vector>

namespace ms::comm {
namespace {

constexpr unsigned long kTimerSlackNs = 1000;  // the kernel's default is 50 us

}  // namespace

WakeTimer::WakeTimer() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

void WakeTimer::wake_at(Clock::time_point due, const tensor::CpuWaker& waker) {
  {
    std::lock_guard lock(mutex_);
    if (!released_) {
      const auto place = sleepers_.emplace(due, waker);
      if (place == sleepers_.begin()) changed_.notify_all();
      return;
    }
  }
  waker.wake();
}

void WakeTimer::release() {
  std::lock_guard lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

void WakeTimer::run(const std::stop_token& stop) {
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);  // if refused, wake-ups are less precise
  std::vector<tensor::CpuWaker> due;
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto end = released_ ? sleepers_.end() : sleepers_.upper_bound(Clock::now());
    for (auto sleeper = sleepers_.begin(); sleeper != end; ++sleeper) due.push_back(sleeper->second);
    sleepers_.erase(sleepers_.begin(), end);
    if (!due.empty()) {
      lock.unlock();
      for (const tensor::CpuWaker& waker : due) waker.wake();
      due.clear();
      lock.lock();
      continue;  // more sleepers may have been added meanwhile
    }
    // Only wake_at() with an earlier time changes the first sleeper, and it notifies this thread.
    const auto has_changed = [this, first = sleepers_.empty() ? Clock::time_point::max() : sleepers_.begin()->first] {
      return released_ ? !sleepers_.empty() : !sleepers_.empty() && sleepers_.begin()->first < first;
    };
    if (sleepers_.empty()) {
      changed_.wait(lock, stop, has_changed);
    } else {
      changed_.wait_until(lock, stop, sleepers_.begin()->first, has_changed);
    }
  }
}

}  // namespace ms::comm
