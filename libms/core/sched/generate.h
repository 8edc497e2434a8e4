// Generators of pipeline schedules. Each result passes checker.h, coupled too if it was made without early receives.
#pragma once

#include <string_view>

#include "sched/schedule.h"

namespace ms::sched {

struct Options {
  // For executors that overlap: receives are issued one computation early, so that the transfer overlaps it; takes up
  // to one more slot on ranks whose forwards receive. Without it the rows are for coupled executors (checker.h), which
  // such an order would deadlock: each receive stands where both sides come to it together, and where a transfer in
  // each direction is due at the same time, the receive stands before the send, as one exchange.
  bool early_receives = true;
  // Order on the wire is order of need. A chunk's parameters are gathered one computation before its first forward, the
  // first two chunks' at the very beginning; its gradients are reduced right after its last backward. On rank r both
  // are skewed by r computations, gathers earlier and reductions later (at the end at the latest), so that all ranks
  // launch theirs at the same time: the chunk's forward comes to rank r that much later than to rank 0, its backward
  // that much earlier. Without it everything is gathered at the beginning and reduced at the end: an executor that
  // waits for each collective would otherwise hold up the pipeline for it, rank after rank.
  bool spread_parameters = true;
};

// Both throw Error("sched.shape", user) where the shape does not fit the schedule. pp = 1 takes chunks = 1 only:
// between chunks of one rank there is nothing to transfer.

// The training schedule that [mesh] schedule names, see registry.h. Another name is an Error("sched.name", user).
Schedule make_schedule(std::string_view key, int pp, int chunks, int microbatches, const Options& options = {});
// Evaluation: forwards only, in the order of the interleaved schedule; any number of microbatches.
Schedule forward_only(int pp, int chunks, int microbatches, const Options& options = {});
// One microbatch: forward through all virtual stages, then backward through them.
Schedule there_and_back(int pp, int chunks, const Options& options = {});

}  // namespace ms::sched
