// [optim] shard_group: how many ranks share a copy of the optimizer's state. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "mesh/config.h"
#include "optim/config.h"

namespace ms::optim {

// Returns into how many shard groups (mesh::Mesh::shard_groups) the ranks that hold the same parameters divide.
std::int64_t shard_groups(const OptimConfig& config, const mesh::MeshConfig& mesh);
// Returns the most ranks that share the state of a parameter, of experts too, if zero is above 0.
std::int64_t most_replicas(const OptimConfig& config, const mesh::MeshConfig& mesh);

// Returns why the mesh has no such shard groups; empty: it has.
std::string shard_group_problem(const OptimConfig& config, const mesh::MeshConfig& mesh);

}  // namespace ms::optim
