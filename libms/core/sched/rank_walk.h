// The rows of one rank by themselves, in order of issue. The checker asks this about every rank before it runs all of
// them together: it finds what can be seen without the others, and lists what each row waits for (checker.h).
#pragma once

#include <string>
#include <vector>

#include "sched/checker.h"

namespace ms::sched {

struct RankWalk {
  std::string
      problem;        // the first found, with rank and row; empty if there is none, and only then the rest is filled in
  RankReport report;  // without what takes the other ranks to know
  std::vector<std::vector<int>> waits;  // [row]: rows of the rank that it waits for, all above it
};

RankWalk walk_rank(const Schedule& schedule, int rank, Coupling coupling);

}  // namespace ms::sched
