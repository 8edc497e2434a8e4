// Generators of pipeline schedules. In all of them every (rank, chunk) runs its backwards in rising order of
// microbatch, so that gradients are summed in one order and have the same bits whatever the schedule. Each result
// passes checker.h, coupled too if it was made without early receives.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

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
  // that much earlier. Without it everything is gathered at the beginning and reduced at the end: whoever waits for
  // each message would otherwise hold up the pipeline for it, rank after rank.
  bool spread_parameters = true;
};

// All throw Error("sched.shape", user) where the shape does not fit the schedule. pp = 1 takes chunks = 1 only: between
// chunks of one rank there is nothing to hand over.

// All forwards, then all backwards. Stores every microbatch. chunks must be 1.
Schedule gpipe(int pp, int microbatches, Options options = {});
// One forward, one backward: rank r runs min(pp - r - 1, microbatches) forwards ahead, then alternates.
Schedule one_f_one_b(int pp, int microbatches, Options options = {});
// ZB-H1 of Qi et al., Zero Bubble Pipeline Parallelism (arXiv 2401.10241): 1F1B with split backwards. The previous rank
// waits for the input half only; rank r is r weight halves behind, which it does at the end, where 1F1B would be idle.
// No rank keeps more microbatches than the first does in 1F1B: min(pp, microbatches). With F, I, W the times of forward
// and halves, the bubble is (pp - 1)(F + I) - (min(pp, microbatches) - 1) W as long as W <= min(F, I); with longer W it
// is more than that, and never more than that of 1F1B. chunks must be 1.
Schedule zero_bubble_h1(int pp, int microbatches, Options options = {});
// Interleaved 1F1B (chunks > 1). Microbatches are taken in groups of `group` (pp if absent, at least pp); the last
// group may be short but not shorter than pp. In the classic form, group = pp, microbatches must be a multiple of pp.
Schedule interleaved(int pp, int chunks, int microbatches, std::optional<int> group = {}, Options options = {});
// Evaluation: forwards only, in the order of the interleaved schedule; any number of microbatches.
Schedule forward_only(int pp, int chunks, int microbatches, Options options = {});

// The training schedule that [mesh] schedule names: "gpipe", "zb-h1" or "1f1b", the interleaved form where chunks > 1.
// Another name is an Error("sched.name", user).
Schedule make_schedule(std::string_view name, int pp, int chunks, int microbatches, Options options = {});

// The k-th forward of every rank of an interleaved schedule: groups of microbatches, in each group chunk 0 of all of
// them, then chunk 1, ... The k-th backward is the same entry with the chunks reversed.
struct Entry {
  int chunk, microbatch;
  bool operator==(const Entry&) const = default;
};
std::vector<Entry> order_table(int chunks, int microbatches, int group);

}  // namespace ms::sched
