// The ranks of a check over MPI or NCCL, as a command asks for them. libms/ops/fabric starts and uses them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "net/measure/workers.h"

namespace ms::net {

inline constexpr int kNothingMeasured = 3;  // exit status, as Nagios has it

struct RanksRequest {
  std::string transport = "mpi";  // "mpi", "nccl", "threads"
  int ranks = 0;                  // of threads
  double deadline_s = 60;         // for any one operation
  std::optional<int> gpu = {};    // of every node, over NCCL; without it each rank has the one of its place on its node
};

// Workers that are the ranks of a launch: one of each node, or all ranks if there is only one node.
class LaunchedWorkers : public Workers {
 public:
  // Times an all-reduce within each group, all groups at the same time and with as many bytes. Returns the seconds of
  // each group over the bus factor of all-reduce. No node is in two groups. Throws Error("comm.*").
  virtual std::vector<double> time_groups(const std::vector<std::vector<int>>& groups) = 0;
};

}  // namespace ms::net
