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
  // Once the world has failed, calls `report`: the launcher may kill the process soon. After `limit` it calls `end`,
  // which ends the process. Both on a thread of its own.
  ShutdownWatch(std::chrono::milliseconds limit, Callback report, Callback end);
  ~ShutdownWatch();
  ShutdownWatch(const ShutdownWatch&) = delete;
  ShutdownWatch& operator=(const ShutdownWatch&) = delete;

  // The world fails, or the rank shuts down after a failure. From any thread; the first call counts: `report` is called
  // after `grace`.
  void begin_failed(const comm::World::Cause& cause, std::chrono::milliseconds grace);
  // The run is done: what becomes of the world does not matter any more, and after `limit` this calls `end`.
  void begin_done(std::chrono::milliseconds limit, std::function<void()> end);

 private:
  void watch(const std::stop_token& stop);

  const std::chrono::milliseconds limit_;
  const Callback report_, end_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable_any wake_;
  std::optional<comm::World::Cause> cause_;
  std::chrono::milliseconds grace_{}, done_limit_{};
  std::function<void()> done_;  // ends the process of a run that is done
  std::jthread thread_;
};

}  // namespace ms::train
