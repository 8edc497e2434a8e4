// Faults of the emulated NCCL between two of its members, from the environment variables that nccl.cpp lists.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace ms::emulated::nccl {

// The rank that mpirun gave this process; where there is none, the GPU: ranks are threads, each with a GPU of its own.
inline int own_world_rank() {
  if (const char* rank = std::getenv("OMPI_COMM_WORLD_RANK")) return std::atoi(rank);
  int gpu = 0;
  cudaGetDevice(&gpu);
  return gpu;
}
// NCCL's ways inside a node are switched off: members are connected over the network.
inline bool over_network() {
  const char *p2p = std::getenv("NCCL_P2P_DISABLE"), *shm = std::getenv("NCCL_SHM_DISABLE");
  return p2p != nullptr && shm != nullptr && std::atoi(p2p) != 0 && std::atoi(shm) != 0;
}
// Bytes a second between two ranks; 0: as fast as it goes.
inline double rate_between(int one, int other) {
  const char* text = std::getenv(over_network() ? "MS_EMULATED_NCCL_NET_SLOW" : "MS_EMULATED_NCCL_SLOW");
  int a = 0, b = 0;
  double rate = 0;
  if (text == nullptr) return 0;
  if (std::sscanf(text, "%d@%lf", &a, &rate) == 2) return a == one || a == other ? rate : 0;
  if (std::sscanf(text, "%d-%d@%lf", &a, &b, &rate) != 3) return 0;
  return a == std::min(one, other) && b == std::max(one, other) ? rate : 0;
}
inline bool lies(int world_rank) {
  const char* text = std::getenv("MS_EMULATED_NCCL_WRONG");
  return text != nullptr && std::atoi(text) == world_rank;
}

}  // namespace ms::emulated::nccl
