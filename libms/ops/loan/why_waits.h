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
// The time named is that in which the jobs that run leave enough nodes, by their time limits. Slurm may start the job
// earlier, if they end, and later, if it gives the nodes to another one.
std::string waiting_text(const slurm::Job& job, const View& view, const Plan& plan, const Policy& policy);

}  // namespace ms::loan
