// Ends a process whose run is over although the thread that runs the rank does not return: a driver call or a GPU
// operation that waits for a lost peer may never complete. Covers runs that failed and runs that are done.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "comm/world.h"

namespace ms::train {

class ShutdownWatch {
 public:
  using Callback = std::function<void(const comm::World::Cause&)>;
  // Polls the world from now on. Once it has failed and this object still exists a moment later, calls `report`: the
  // launcher may kill the process soon. After `limit` it calls `end`, which ends the process. Both on a thread of its
  // own.
  ShutdownWatch(const comm::World& world, std::chrono::milliseconds limit, Callback report, Callback end);
  ~ShutdownWatch();
  ShutdownWatch(const ShutdownWatch&) = delete;
  ShutdownWatch& operator=(const ShutdownWatch&) = delete;

  // The rank shuts down after a failure: `limit` begins, and the world is not used any more.
  void begin_failed(const comm::World::Cause& cause);
  // The run is done, and the world is not used any more: after `limit` this calls `end`.
  void begin_done(std::chrono::milliseconds limit, std::function<void()> end);

 private:
  void watch(const std::stop_token& stop);

  const comm::World& world_;
  const std::chrono::milliseconds limit_;
  const Callback report_, end_;
  std::mutex mutex_;  // guards what follows, and the world while it is polled
  std::condition_variable_any wake_;
  std::optional<comm::World::Cause> cause_;
  std::chrono::milliseconds done_limit_{};
  std::function<void()> done_;  // ends the process of a run that is done
  std::jthread thread_;
};

}  // namespace ms::train
