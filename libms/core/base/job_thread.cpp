#include "base/job_thread.h"

#include <pthread.h>

#include <exception>
#include <utility>

#include "base/log.h"

namespace ms {

JobThread::JobThread(std::string name, std::optional<int> rank)
    : thread_([this, name = std::move(name), rank](const std::stop_token& stop) {
        std::optional<log::RankScope> scope;
        if (rank) scope.emplace(*rank);
        run(name, stop);
      }) {}

void JobThread::run(const std::string& name, const std::stop_token& stop) {
  pthread_setname_np(pthread_self(), name.c_str());
  while (true) {
    Job job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, stop, [&] { return !jobs_.empty(); });
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      running_ = true;
    }
    // The trampoline. Whoever gives jobs has taken care of what it knows; the rest is that the run has failed.
    try {
      job(stop);
    } catch (const std::exception& error) { log::debug("thread", "{} gives up: {}", name, error.what()); }
    job = nullptr;  // what it holds goes before anybody hears that it is done
    {
      const std::lock_guard lock(mutex_);
      running_ = false;
    }
    changed_.notify_all();
  }
}

void JobThread::post(Job job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

bool JobThread::busy() const {
  const std::lock_guard lock(mutex_);
  return running_ || !jobs_.empty();
}

void JobThread::wait_for(std::chrono::milliseconds at_most) const {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, at_most, [&] { return !running_ && jobs_.empty(); });
}

}  // namespace ms
