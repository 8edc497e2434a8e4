// How long a prolog may take: what its parts get, and what that makes in the worst case, in one place. The flow keeps
// to it; check-site compares it with when the plugin ends ms-diag, and that with Slurm's own time-outs. With the
// defaults all of it ends before a batch job is lost to Slurm (BatchStartTimeout, 10 s), where Slurm's own defaults are
// kept.
#pragma once

#include "health/policy.h"

namespace ms::health {

// How long another prolog or epilog of this node, which decides about the same findings, is waited for.
inline constexpr double kLockPatience_s = 1;

// All calls of Slurm together have at least this; what the checks and the lock leave of their time is theirs too.
inline constexpr double kSlurmTotal_s = 3.6;
inline constexpr double kSlurmCall_s = 0.7;
inline constexpr double kSlurmKill_s = 0.1;  // for a call that had to be ended

// To set a drain, to count, to look and to withdraw, each as slow as a call may be: with less time left none is set.
inline constexpr double kNeeded_s = 4 * (kSlurmCall_s + kSlurmKill_s);
static_assert(kNeeded_s < kSlurmTotal_s);

// Our own files, and processes that had to be ended.
inline constexpr double kOwnWork_s = 0.3;

// From the start of ms-diag to its last question to Slurm, and to its end.
constexpr double time_for_slurm_s(const PrologConfig& prolog) {
  return prolog.deadline_s + kLockPatience_s + kSlurmTotal_s;
}
constexpr double longest_prolog_s(const PrologConfig& prolog) { return time_for_slurm_s(prolog) + kOwnWork_s; }

}  // namespace ms::health
