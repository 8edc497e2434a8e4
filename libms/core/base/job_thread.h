// A thread that runs its jobs one after the other. The destructor requests a stop and still runs the jobs in the queue,
// so that a short one that must not be lost is not.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

namespace ms {

class JobThread {
 public:
  // An exception ends only the job that throws it.
  using Job = std::function<void(const std::stop_token&)>;

  // `name` of at most 15 bytes; `rank`, where there is one, labels what is logged.
  explicit JobThread(std::string name, std::optional<int> rank = {});

  void post(Job job);
  bool busy() const;
  void wait_for(std::chrono::milliseconds at_most) const;  // until it is not busy

 private:
  void run(const std::string& name, const std::stop_token& stop);

  mutable std::mutex mutex_;  // guards jobs_, running_
  mutable std::condition_variable_any changed_;
  std::deque<Job> jobs_;
  bool running_ = false;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace ms
