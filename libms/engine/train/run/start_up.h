// Checks of a run's ranks before step 0, without a barrier: all were started with the same settings and know the same
// groups. Every rank compares itself with rank 0.
#pragma once

#include <chrono>
#include <string>

#include "comm/group_ids.h"
#include "comm/world.h"
#include "mesh/mesh.h"

namespace ms::train {

// Returns the first difference between two configurations (Loaded::values), "[train] steps is 20 there and 10 here";
// empty if there is none.
std::string first_difference(const std::string& here, const std::string& there);

class StartUp {
 public:
  // `values`, of Loaded, outlives this. Publishes what the others will ask for; does not wait.
  StartUp(comm::World& world, const std::string& values, std::chrono::milliseconds deadline);
  StartUp(const StartUp&) = delete;
  StartUp& operator=(const StartUp&) = delete;

  // Throws Error("comm.configuration", user) where this rank and rank 0 have different settings.
  void check_configuration();
  // Warns if this rank computes on another instruction set than rank 0: the bits of results then depend on which rank
  // computes them. Of neighbouring ranks on one node, the first warns. Collective.
  void compare_instruction_sets();
  // Publishes and fetches the ids of all groups of this rank. Throws as check_configuration().
  void create_groups(const mesh::Groups& groups);

 private:
  comm::World& world_;
  const std::string& values_;
  std::chrono::milliseconds deadline_;
  comm::CountedStore store_;
  comm::GroupIds ids_;
};

}  // namespace ms::train
