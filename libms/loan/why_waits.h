// Says why a job does not start, and when it could: for ms-loan explain. Pure.
#pragma once

#include <string>

#include "loan/plan.h"
#include "slurm/records.h"

namespace ms::loan {

// Says what Slurm alone knows of the job, as a sentence; empty: it waits for nodes, for those on loan if it is of the
// loan partition.
std::string not_waiting_text(const slurm::Job& job);

// Sentences, a line each, about a job that not_waiting_text() has nothing to say of. `plan` is what act would do now.
// The time named is the latest by the time limits of the jobs that run: Slurm may start it earlier, if they end.
std::string waiting_text(const slurm::Job& job, const View& view, const Plan& plan, const Policy& policy);

}  // namespace ms::loan
