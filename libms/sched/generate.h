// Generators of pipeline schedules. In all of them every (rank, chunk) runs its backwards in rising order of
// microbatch, so that gradients are summed in one order and have the same bits whatever the schedule. Each result
// passes checker.h.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "sched/schedule.h"

namespace ms::sched {

struct Options {
  // Receives are issued one computation early, so that the transfer overlaps it; takes up to one more slot on ranks
  // whose forwards receive. Without it a receive stands immediately before the computation that needs it.
  bool early_receives = true;
};

// All throw Error("sched.shape", user) where the shape does not fit the schedule. pp = 1 takes chunks = 1 only: between
// chunks of one rank there is nothing to hand over.

// All forwards, then all backwards. Stores every microbatch. chunks must be 1.
Schedule gpipe(int pp, int microbatches, Options options = {});
// One forward, one backward: rank r runs min(pp - r - 1, microbatches) forwards ahead, then alternates.
Schedule one_f_one_b(int pp, int microbatches, Options options = {});
// Interleaved 1F1B (chunks > 1). Microbatches are taken in groups of `group` (pp if absent, at least pp); the last
// group may be short but not shorter than pp. In the classic form, group = pp, microbatches must be a multiple of pp.
Schedule interleaved(int pp, int chunks, int microbatches, std::optional<int> group = {}, Options options = {});
// Evaluation: forwards only, in the order of the interleaved schedule; any number of microbatches.
Schedule forward_only(int pp, int chunks, int microbatches, Options options = {});

// The training schedule that [mesh] schedule names: "gpipe" or "1f1b", which is the interleaved form where chunks > 1.
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
