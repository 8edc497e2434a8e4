// The ranks that a check is made of: threads of this process, or the processes of one launch, over MPI or over NCCL.
#pragma once

#include <functional>

#include "comm/world.h"
#include "net/measure/ranks.h"
#include "tensor/stream.h"

namespace ms::fabric {

// The devices of a rank: what is measured moves between `data`, what ranks tell each other between `host`, over MPI
// where they are processes. One device unless messages go between GPUs.
struct RankDevices {
  tensor::Device& host;
  tensor::Device& data;
};

// Runs `body` on every rank of this process and closes the world. True where one of them is rank 0. What a body throws
// stops all others. Throws Error("net.launch", user) where there is no other rank, Error("cuda.*") where there is
// no GPU, no CUDA or no NCCL, Error("comm.*"). A process whose GPU does not let go of a lost peer's messages says so
// and ends with kNothingMeasured.
bool run_ranks(const net::RanksRequest& request,
               const std::function<void(comm::World& world, const RankDevices& devices)>& body);

}  // namespace ms::fabric
