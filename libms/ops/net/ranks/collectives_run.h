// A check of collectives from beginning to end.
#pragma once

#include <optional>
#include <vector>

#include "net/ranks/collectives.h"
#include "net/ranks/ranks.h"

namespace ms::net {

struct CollectivesRequest {
  RanksRequest ranks = {};
  std::optional<mesh::Mesh> mesh = {};  // its groups are measured, too; it fills the world
  CollectiveOptions options = {};
  std::function<void(const std::string& what)> before = {};
};

// The rows, on rank 0; nullopt on the other processes of a launch. Throws what run_ranks throws, Error("mesh.size",
// user).
std::optional<std::vector<CollectiveRow>> check_collectives(const CollectivesRequest& request);

}  // namespace ms::net
