// The agent on a node: hears the heartbeats of the node's ranks, sees their processes end, and reports both to the
// driver several times a second; looks at tasks and ends them when told to.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/sysroot.h"
#include "driver/credential.h"

namespace ms::driver {

struct AgentOptions {
  std::vector<std::string> drivers;  // addresses, the first that answers counts
  std::string node;                  // what Slurm calls this node
  int job = 0;
  std::string socket;      // of heartbeats; its directory is made
  std::string evidence;    // a directory, where a run that hangs leaves stacks and NCCL's reports; empty: nowhere
  double every_s = 0.25;   // between two reports: see report_every_s()
  double patience_s = 60;  // without a driver
  std::string diag = "ms-diag";
  double health_s = 0;  // between two looks of ms-diag at this node; 0: none
  Sysroot root = Sysroot();
};

// Returns a path for the socket of heartbeats, to be the same on every node. It cannot be guessed; but who
// has processes on two nodes can see it on one and lay something of theirs at it on the other.
std::string new_heartbeat_path();

// Returns true when the driver says so, false when none was there for patience_s. Where the socket cannot be had, the
// agent does all but hear heartbeats, and says so. Throws Error("driver.agent") of an address that is none.
bool run_agent(const AgentOptions& options, const Credentials& credentials);

}  // namespace ms::driver
