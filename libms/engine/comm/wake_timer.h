// Wakes parked streams at given times, for operations with a simulated duration. One thread, which sleeps in between,
// so that waiting costs no processor time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>

#include "tensor/cpu_stream.h"

namespace ms::comm {

class WakeTimer {
 public:
  using Clock = std::chrono::steady_clock;

  WakeTimer();
  // Wakes the stream at `due` or some ten microseconds later if the machine is not busy; never earlier.
  void wake_at(Clock::time_point due, const tensor::CpuWaker& waker);
  // Wakes all sleepers now and later ones at once: the world stops.
  void release();

 private:
  void run(const std::stop_token& stop);

  std::mutex mutex_;  // guards what follows
  std::condition_variable_any changed_;
  std::multimap<Clock::time_point, tensor::CpuWaker> sleepers_;
  bool released_ = false;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace ms::comm
