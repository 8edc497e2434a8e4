// Rounds of work on several cores in step.
#pragma once

#include <functional>
#include <vector>

#include "diag/pace.h"

namespace ms::diag {

// Runs rounds with a thread on each core until the pace has no more; a round ends when all threads have ended theirs.
// `round` is called with the thread's number and the size, `after` by each thread behind the last round. What they
// throw is thrown, once all threads have ended. left_s: see Pace::ended().
void in_step(const std::vector<int>& cpus, Pace& pace, const std::function<double()>& left_s,
             const std::function<void(std::size_t thread, std::int64_t size)>& round,
             const std::function<void(std::size_t thread)>& after);

}  // namespace ms::diag
