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
    .name = "launch",
    .value = "HOW",
    .doc = "How to start the agents: srun, or a command per node that contains {node} and {agent}.",
    .default_text = "srun"};
inline const Option kWait{
    .name = "wait", .value = "TIME", .doc = "Time that agents may take to connect.", .default_text = "30s"};
inline const Option kGpu{
    .name = "gpu", .value = "N", .doc = "With nccl and one rank per node, use GPU N and the adapter nearest to it."};
inline const Option kDeadline{
    .name = "deadline",
    .value = "TIME",
    .doc =
        "Time limit of a transfer with mpi or nccl. If a transfer takes longer, the rank that delays it is reported.",
    .default_text = "60s"};
inline const Option kJson{.name = "json", .doc = "Print one JSON document."};
inline const Option kRoot{
    .name = "root", .value = "DIR", .doc = "Directory that contains /sys and /proc.", .default_text = "/"};

Command pairs_command();
Command locate_command();
Command ecmp_command();
Command agent_command();  // started by the others on every node
Command collectives_command();
Command counters_command();
Command config_command();
Command inspector_command();
Command nccl_log_command();

}  // namespace ms::net
