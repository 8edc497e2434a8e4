// A process whose world has failed says so and comes to its end, even where the thread that runs the rank does not:
// what it waits for, a driver or a GPU that a peer has left alone, may never come. One whose run is done ends, too.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/world.h"

namespace ms::train {

class Leaving {
 public:
  using Words = std::function<void(const comm::World::Cause&)>;
  // Looks at the world from now on. Where it has failed, and this is still there a moment later, calls `tell`:
  // launchers are impatient. After `limit` it calls `end`, which ends the process. Both on a thread of its own.
  Leaving(const comm::World& world, std::chrono::milliseconds limit, Words tell, Words end);
  ~Leaving();
  Leaving(const Leaving&) = delete;
  Leaving& operator=(const Leaving&) = delete;

  // The rank is leaving by itself: the world, which may go now, is not looked at any more, and the time runs.
  void begin(const comm::World::Cause& cause);
  // The run is done, and the world may go: after `limit` this calls `end`.
  void begin(std::chrono::milliseconds limit, std::function<void()> end);

 private:
  void watch(const std::stop_token& stop);

  const comm::World& world_;
  const std::chrono::milliseconds limit_;
  const Words tell_, end_;
  std::mutex mutex_;  // guards what follows, and the world while it is looked at
  std::condition_variable_any wake_;
  std::optional<comm::World::Cause> cause_;
  std::chrono::milliseconds done_limit_{};
  std::function<void()> done_;  // how a run that is done ends
  std::jthread thread_;
};

}  // namespace ms::train
