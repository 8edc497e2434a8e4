// Runs a schedule in virtual time under the rules of checker.h. Called by the checker, after it has found that every
// rank by itself is in order. The result does not depend on the order in which ranks are looked at: nothing is
// arbitrated.
#pragma once

#include <string>
#include <vector>

#include "sched/checker.h"

namespace ms::sched {

using Waits = std::vector<std::vector<std::vector<int>>>;  // [rank][row]: rows of the same rank that it waits for

struct VirtualRun {
  std::string problem;  // sends and receives that do not match, or a deadlock; empty if it ran to completion
  double makespan = 0.0;
  std::vector<int> at_once;              // [rank], see RankReport
  std::vector<std::vector<double>> end;  // [rank][row]; below 0 of gathers and reductions, which take no part
};

// Whether it runs to completion where no row is issued before the computations above it are over: the deadlock, or
// empty.
std::string deadlock_when_late(const Schedule& schedule, Waits waits);

VirtualRun run_in_virtual_time(const Schedule& schedule, const Waits& waits, const Times& times);

}  // namespace ms::sched
