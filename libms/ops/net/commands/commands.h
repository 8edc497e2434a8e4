// The commands of ms-netcheck, and the options and arguments that they share.
#pragma once

#include <string>
#include <vector>

#include "base/cli.h"
#include "net/agents/agent_workers.h"
#include "net/measure/ranks.h"

namespace ms::net {

// Whom a command may load: --nodes within the job, else all of it; see scope.h.
std::vector<std::string> nodes_of(const Args& args, const std::string& launch);
// The ranks that --transport, --gpu and --deadline ask for.
RanksRequest ranks_of(const Args& args);
// Agents on those nodes, as --launch and --wait say.
AgentWorkersOptions agents_of(const Args& args);

inline const Option kLaunch{
    "launch", "HOW", "How to start the agents: srun, or a command per node that contains {node} and {agent}.", "srun"};
inline const Option kWait{"wait", "TIME", "Time that agents may take to connect.", "30s"};
inline const Option kGpu{"gpu", "N", "With nccl and one rank per node, use GPU N and the adapter nearest to it."};
inline const Option kDeadline{
    "deadline", "TIME",
    "Time limit of a transfer with mpi or nccl. If a transfer takes longer, the rank that delays it is reported.",
    "60s"};
inline const Option kJson{"json", "", "Print one JSON document."};
inline const Option kRoot{"root", "DIR", "Directory that contains /sys and /proc.", "/"};

Command pairs_command();
Command locate_command();
Command ecmp_command();
Command agent_command();  // started by the others on every node
Command collectives_command();
Command counters_command();
Command config_command();
Command plan_command();
Command inspector_command();
Command nccl_log_command();

}  // namespace ms::net
