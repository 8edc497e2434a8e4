// Calls into a library that block until other ranks take part, and that another thread can end.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace ms::comm {

// Runs `f` in a thread that is left behind if nobody waits for the future.
template <class F>
auto in_thread(F f) {
  std::packaged_task<decltype(f())()> task(std::move(f));
  auto future = task.get_future();
  std::thread(std::move(task)).detach();
  return future;
}

// run() is for one thread at a time; in_progress() and end() for any other.
class BlockingCalls {
 public:
  using Begun = std::pair<std::chrono::steady_clock::time_point, std::string>;  // when, and what

  // Returns what the call returns; nullopt: end() has been called before. `interrupt` makes the call return early.
  template <class F>
  auto run(const std::string& what, std::function<void()> interrupt, F&& call)
      -> std::optional<decltype(std::forward<F>(call)())> {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return std::nullopt;
      interrupt_ = std::move(interrupt);
      begun_ = {std::chrono::steady_clock::now(), what};
    }
    auto result = std::forward<F>(call)();
    const std::lock_guard lock(mutex_);
    interrupt_ = nullptr;
    return result;
  }
  std::optional<Begun> in_progress() const {
    const std::lock_guard lock(mutex_);
    return interrupt_ ? std::optional(begun_) : std::nullopt;
  }
  // Interrupts the call in progress, and refuses later ones. A call does not return while it is being interrupted.
  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    // Once: a call that threw has left it behind, and what it interrupts may be gone the next time.
    if (const auto interrupt = std::exchange(interrupt_, nullptr)) interrupt();
  }

 private:
  mutable std::mutex mutex_;
  std::function<void()> interrupt_;  // empty: no call is in progress
  Begun begun_;
  bool ended_ = false;
};

}  // namespace ms::comm
