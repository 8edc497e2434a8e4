// A point of a stream of the emulated GPU: passed or not.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace ms::emulated {

class Moment {
 public:
  void pass() {
    const std::lock_guard lock(mutex_);
    at_ = std::chrono::steady_clock::now();
    passed_ = true;
    changed_.notify_all();
  }
  bool passed() const {
    const std::lock_guard lock(mutex_);
    return passed_;
  }
  std::chrono::steady_clock::time_point wait() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return passed_; });
    return at_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool passed_ = false;
  std::chrono::steady_clock::time_point at_;
};

}  // namespace ms::emulated
