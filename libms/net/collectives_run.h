// Where the ranks of a check of collectives are: threads of this process, or the processes of one launch, over MPI.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "net/collectives.h"

namespace ms::net {

struct CollectivesRequest {
  std::string transport = "mpi";        // "mpi", "threads"
  int ranks = 0;                        // of threads
  std::optional<mesh::Mesh> mesh = {};  // its groups are measured, too; it fills the world
  double deadline_s = 60;               // for any one operation
  CollectiveOptions options = {};
  std::function<void(const std::string& what)> before = {};
};

// The rows, on rank 0; nullopt on the other processes of a launch. Throws Error("net.launch", user) where there is
// nobody to talk to, Error("mesh.size", user), Error("comm.*").
std::optional<std::vector<CollectiveRow>> check_collectives(const CollectivesRequest& request);

}  // namespace ms::net
