// The ranks that a check is made of: threads of this process, or the processes of one launch, over MPI or over NCCL.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/world.h"
#include "tensor/stream.h"

namespace ms::net {

inline constexpr int kNothingMeasured = 3;  // exit status, as Nagios has it

struct RanksRequest {
  std::string transport = "mpi";  // "mpi", "nccl", "threads"
  int ranks = 0;                  // of threads
  double deadline_s = 60;         // for any one operation
  std::optional<int> gpu = {};    // of every node, over NCCL; without it each rank has the one of its place on its node
};

// The devices of a rank: what is measured moves between `data`, what ranks tell each other between `host`, over MPI
// where they are processes. One device unless messages go between GPUs.
struct RankDevices {
  tensor::Device& host;
  tensor::Device& data;
};

// Runs `body` on every rank of this process and closes the world. True where one of them is rank 0. What a body throws
// stops all others. Throws Error("net.launch", user) where there is nobody to talk to, Error("cuda.*") where there is
// no GPU, no CUDA or no NCCL, Error("comm.*"). A process whose GPU does not let go of a lost peer's messages says so
// and ends with kNothingMeasured.
bool run_ranks(const RanksRequest& request,
               const std::function<void(comm::World& world, const RankDevices& devices)>& body);

}  // namespace ms::net
