// Time, as a thing that is passed in: code that waits or measures takes a Clock&, so that its tests need no real time.
#pragma once

#include <chrono>
#include <mutex>
#include <thread>

namespace ms {

class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  virtual double now_s() const = 0;   // monotonic, from any origin
  virtual double wall_s() const = 0;  // since 1970, UTC; may jump
  virtual void sleep_s(double seconds) = 0;
};

class SystemClock final : public Clock {
 public:
  double now_s() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  double wall_s() const override {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  }
  void sleep_s(double seconds) override {
    if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
};

// Returns seconds of the system's monotonic clock, for code that only measures how long something took.
inline double monotonic_s() { return SystemClock().now_s(); }

// For tests: time passes when told to, and while "sleeping". Safe to share between threads.
class FakeClock final : public Clock {
 public:
  explicit FakeClock(double wall_start_s = 1.8e9) : wall_start_s_(wall_start_s) {}
  double now_s() const override {
    const std::lock_guard lock(mutex_);
    return elapsed_s_;
  }
  double wall_s() const override { return wall_start_s_ + now_s(); }
  void sleep_s(double seconds) override {
    if (seconds > 0) advance_s(seconds);
  }
  void advance_s(double seconds) {
    const std::lock_guard lock(mutex_);
    elapsed_s_ += seconds;
  }

 private:
  const double wall_start_s_;
  mutable std::mutex mutex_;  // guards elapsed_s_
  double elapsed_s_ = 0;
};

}  // namespace ms
