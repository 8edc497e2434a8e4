#include "train/run/shutdown.h"

#include <utility>

namespace ms::train {

ShutdownWatch::ShutdownWatch(std::chrono::milliseconds limit, Callback report, Callback end)
    : limit_(limit), report_(std::move(report)), end_(std::move(end)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}
ShutdownWatch::~ShutdownWatch() = default;

void ShutdownWatch::begin_failed(const comm::World::Cause& cause, std::chrono::milliseconds grace) {
  const std::lock_guard lock(mutex_);
  if (cause_) return;
  cause_ = cause;
  grace_ = grace;
  wake_.notify_all();
}

void ShutdownWatch::begin_done(std::chrono::milliseconds limit, std::function<void()> end) {
  const std::lock_guard lock(mutex_);
  done_limit_ = limit;
  done_ = std::move(end);
  wake_.notify_all();
}

void ShutdownWatch::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto pause = [&](std::chrono::milliseconds time) {
    wake_.wait_for(lock, stop, time, [] { return false; });
    return !stop.stop_requested();
  };
  if (!wake_.wait(lock, stop, [&] { return cause_ || done_; })) return;
  if (!done_ && grace_.count() > 0 && !pause(grace_)) return;
  if (done_) {
    if (pause(done_limit_)) done_();
    return;
  }
  const comm::World::Cause cause = *cause_;
  lock.unlock();
  report_(cause);
  lock.lock();
  if (pause(limit_)) end_(cause);
}

}  // namespace ms::train
