// The way from a real Slurm to a view of it, and from a plan to Slurm. Only the loan partition's list of nodes and jobs
// of that partition are ever changed.
#pragma once

#include <functional>
#include <optional>

#include "base/error.h"
#include "loan/memory.h"
#include "loan/plan.h"
#include "slurm/commands.h"

namespace ms::loan {

slurm::CommandOptions command_options(const SlurmConfig& config);

// Returns the error of Slurm, of the demand or of a file that ended `step`; nullopt: none did.
std::optional<Error> failure_of(const std::function<void()>& step);

// Error("loan.demand", "loan.nodes" or "slurm.hostlist", user) where the policy lacks what observe and act need.
void check_live(const Policy& policy);

// How many nodes inference needs now, from demand.file or demand.command. Error("loan.demand", user): it does not say.
int read_demand_now(const Policy& policy);

// Asks Slurm, in five calls, or six where jobs wait. Error("slurm.command", slurm): it does not answer.
// Error("loan.partition", user): the loan partition has nodes that the policy does not name.
View read_view(const slurm::Commands& slurm, const Policy& policy, double now_s);

// Reads what a job's comment says of an elastic run (slurm/elastic.h), if it is one. A user may have written anything:
// a curve that is none is left out, and one that is better than proportional counts as proportional. Pure.
void read_elastic_comment(std::string_view comment, LiveJob& job);
// The same for all jobs: a call for each.
void read_elastic(const slurm::Commands& slurm, View& view);

// Does what is planned. An action is recorded before it is done, and the memory is written behind it, so that whoever
// is killed between records and does it twice rather than never. A job that cannot be queued again is logged and
// recorded, and tried at the next poll. Throws Slurm's error if it refuses to change the loan partition: that is
// recorded once for each node, as refused, and tried at every poll; nothing behind it is done before.
void execute(const slurm::Commands& slurm, const Policy& policy, const View& view, const Plan& plan,
             const UniqueFd& state, Memory& memory);

}  // namespace ms::loan
