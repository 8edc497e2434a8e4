// Wakes streams at given times, for operations that take longer than the work they do. One thread, which sleeps in
// between; the streams are parked meanwhile, so that waiting costs no processor time.
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
  // Not before `due`, and some ten microseconds later if the machine is not busy.
  void wake_at(Clock::time_point due, const tensor::CpuWaker& waker);
  // Everybody at once, also who comes later: the world stops.
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
