#include "train/leaving.h"

#include <utility>

namespace ms::train {
namespace {

constexpr std::chrono::milliseconds kLook{200};
constexpr std::chrono::milliseconds kMoment{300};

}  // namespace

Leaving::Leaving(const comm::World& world, std::chrono::milliseconds limit, Words tell, Words end)
    : world_(world), limit_(limit), tell_(std::move(tell)), end_(std::move(end)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
}
Leaving::~Leaving() = default;

void Leaving::begin(const comm::World::Cause& cause) {
  const std::lock_guard lock(mutex_);
  if (!cause_) cause_ = cause;
}

void Leaving::begin(std::chrono::milliseconds limit, std::function<void()> end) {
  const std::lock_guard lock(mutex_);
  done_limit_ = limit;
  done_ = std::move(end);
}

void Leaving::watch(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  const auto pause = [&](std::chrono::milliseconds time) {
    wake_.wait_for(lock, stop, time, [] { return false; });
    return !stop.stop_requested();
  };
  while (!cause_ && !done_) {
    if (!pause(kLook)) return;
    if (!cause_ && !done_) cause_ = world_.cause();
  }
  if (!done_ && !pause(kMoment)) return;
  if (done_) {
    if (pause(done_limit_)) done_();
    return;
  }
  const comm::World::Cause cause = *cause_;
  lock.unlock();
  tell_(cause);
  lock.lock();
  if (pause(limit_)) end_(cause);
}

}  // namespace ms::train
