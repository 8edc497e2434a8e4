#include "train/run/shutdown.h"

#include <utility>

namespace ms::train {
namespace {

constexpr std::chrono::milliseconds kPoll{200};
constexpr std::chrono::milliseconds kGrace{300};

}  // namespace

ShutdownWatch::ShutdownWatch(const comm::World& world, std::chrono::milliseconds limit, Callback report, Callback end)
    : world_(world), limit_(limit), report_(std::move(report)), end_(std::move(end)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}
ShutdownWatch::~ShutdownWatch() = default;

void ShutdownWatch::begin_failed(const comm::World::Cause& cause) {
  const std::lock_guard lock(mutex_);
  if (!cause_) cause_ = cause;
}

void ShutdownWatch::begin_done(std::chrono::milliseconds limit, std::function<void()> end) {
  const std::lock_guard lock(mutex_);
  done_limit_ = limit;
  done_ = std::move(end);
}

void ShutdownWatch::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto pause = [&](std::chrono::milliseconds time) {
    wake_.wait_for(lock, stop, time, [] { return false; });
    return !stop.stop_requested();
  };
  while (!cause_ && !done_) {
    if (!pause(kPoll)) return;
    if (!cause_ && !done_) cause_ = world_.cause();
  }
  if (!done_ && !pause(kGrace)) return;
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
