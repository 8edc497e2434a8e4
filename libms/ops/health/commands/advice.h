// Says what an operator does with a node that has findings, so that the operator needs no manual at night: the remedy
// of each, whether to drain the node, how to look again, whom to call. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "health/commands/causes.h"

namespace ms::health {

// The remedy as it is shown; `all` is the list that `explained` is an element of. A finding that surely follows from
// another one needs none of its own.
std::string remedy_of(const Explained& explained, const std::vector<Explained>& all);

// Lines for the end of a node's report; `findings` is not empty. The reason of a drain begins with the cause. A node
// without a name in Slurm gets no command that has one.
std::vector<std::string> advice_of(const std::string& node, const std::vector<Explained>& findings);

}  // namespace ms::health
