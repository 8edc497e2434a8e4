// Ranks as threads of one process: a rank is a host thread with its own device, and communication is copying. Between
// devices that are each a GPU of its own (tensor::make_cuda_device()) it is NCCL's.
#pragma once

#include <chrono>
#include <memory>

#include "comm/link.h"
#include "comm/world.h"

namespace ms::comm {

// The state that the ranks share. Must outlive their worlds.
class ThreadHub {
 public:
  // `deadline`: how long an operation may wait for its peers. `link`: simulated transfer time, for experiments.
  ThreadHub(int size, std::chrono::milliseconds deadline, Link link = {});
  ~ThreadHub();
  std::unique_ptr<World> world(int rank);

  class Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace ms::comm
