// The agent runs on every node of a check. It introduces itself to the coordinator, carries out its orders, serves
// other agents, and ends with the coordinator's connection.
#pragma once

#include "net/agents/wire.h"

namespace ms::net {

struct AgentOptions {
  Invitation invitation;
  std::string root = "/";  // where /sys and /proc are
  double patience_s = 20;  // for the coordinator to be reached
};

// Returns when the coordinator is gone. Throws Error("net.peer") where it cannot be reached, Error("net.secret").
void run_agent(const AgentOptions& options);

}  // namespace ms::net
