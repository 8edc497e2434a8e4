// The ranks that a check is made of: threads of this process, or the processes of one launch, over MPI.
#pragma once

#include <functional>
#include <string>

#include "comm/world.h"
#include "tensor/stream.h"

namespace ms::net {

struct RanksRequest {
  std::string transport = "mpi";  // "mpi", "threads"
  int ranks = 0;                  // of threads
  double deadline_s = 60;         // for any one operation
};

// Runs `body` on every rank of this process and closes the world. True where one of them is rank 0. What a body throws
// stops all others. Throws Error("net.launch", user) where there is nobody to talk to, Error("comm.*").
bool run_ranks(const RanksRequest& request,
               const std::function<void(comm::World& world, tensor::Device& device)>& body);

}  // namespace ms::net
