// A remedy on the node itself, as root: ms-diag repair --here.
#pragma once

#include <string>

#include "health/policy.h"

namespace ms::health {

// Uses the remedy where Slurm says that this node is drained by us and has no job; prints what it did. A Nagios status:
// 0 done, 2 it failed, 3 another one is at work here, or the node may not be touched. Throws Error("repair.here", user)
// where there is no such remedy, it is the reboot, or the caller is not root.
int use_remedy_here(const Policy& policy, const std::string& node, const std::string& name);

}  // namespace ms::health
