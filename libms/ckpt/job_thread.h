// A thread that does what it is given, one thing after the other. What it still has to do when it is destroyed is done,
// each job seeing the stop, so that a short one that must not be lost is not.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

namespace ms::ckpt {

class JobThread {
 public:
  // What a job throws ends it, and no more.
  using Job = std::function<void(const std::stop_token&)>;

  // `name` of at most 15 bytes; `rank` labels what is logged.
  JobThread(std::string name, int rank);

  void post(Job job);
  bool busy() const;
  void wait_for(std::chrono::milliseconds at_most) const;  // until it is not busy

 private:
  void run(const std::string& name, int rank, const std::stop_token& stop);

  mutable std::mutex mutex_;  // guards jobs_, running_
  mutable std::condition_variable_any changed_;
  std::deque<Job> jobs_;
  bool running_ = false;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace ms::ckpt
