// Who gets extra nodes, and who gives some up for a job that waits: in a replay and on a real Slurm nodes are worth the
// same. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loan/knapsack.h"
#include "loan/plan.h"
#include "loan/trace.h"

namespace ms::loan {

// The choices of an elastic job for the knapsack: each of `sizes` above `base`, in their order. Each is worth the
// seconds by which the job ends earlier than at `base`, less what changing from `now` costs it. `left_s`: of its work,
// as far as it counts. Savings of a far future could be made later as well: without a horizon the longest jobs get all
// workers, and jobs end later on average than with equal shares.
Group extra_choices(const SpeedCurve& curve, int base, std::span<const int> sizes, int now, double left_s,
                    double overhead_s);

struct Growth {
  int job = 0;    // index of View::jobs
  int nodes = 0;  // that it should have
};
// The run that gains most from `idle` nodes that no other run wants. One at a time: Slurm gives a job that starts all
// nodes that it may have, those of a run that waits beside it, too. nullopt: none gains.
std::optional<Growth> choose_growth(const View& view, const Memory& memory, const Policy& policy, int idle);

struct Release {
  int job = 0;                     // index of View::jobs
  std::vector<std::string> nodes;  // that it is to give up
};
struct BaseDemand {
  std::optional<WaitingJob> job = {};   // for which runs are to shrink
  int idle = 0;                         // nodes that it can have without
  std::vector<Release> releases = {};   // empty: no run has to
  std::vector<std::string> notes = {};  // the shortest job that fits nowhere
};
// Jobs that wait come before extra nodes: the shortest first that fits when runs give up nodes above their least, those
// that the knapsack values least. `free`: names of nodes that jobs that wait get anyway, in order. Of longer jobs no
// more than schedule.backfill_depth are looked at.
BaseDemand meet_base_demand(const View& view, const Memory& memory, const Policy& policy,
                            std::vector<std::string> free);

// "1.9 times as fast by its own curve".
std::string speed_words(const LiveJob& job, int nodes);

}  // namespace ms::loan
