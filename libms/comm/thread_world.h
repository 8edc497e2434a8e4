// Ranks as threads of one process: a rank is a host thread with its own device; communication is copying.
#pragma once

#include <chrono>
#include <memory>

#include "comm/link.h"
#include "comm/world.h"

namespace ms::comm {

// What the ranks share. Outlives their worlds.
class ThreadHub {
 public:
  // `deadline`: how long an operation may wait for its peers. `link`: how long messages take, for experiments.
  ThreadHub(int size, std::chrono::milliseconds deadline, Link link = {});
  ~ThreadHub();
  std::unique_ptr<World> world(int rank);

  class Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace ms::comm
