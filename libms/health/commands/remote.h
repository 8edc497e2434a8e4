// The checks of other nodes, by ssh: drained nodes too, which srun refuses. Every node runs its own ms-diag from the
// same path; a node that does not answer, or answers nonsense, is a report of its own with a broken result.
#pragma once

#include <string>
#include <vector>

#include "health/commands/report.h"

namespace ms::health {

struct RemoteOptions {
  std::string program;          // absolute path of ms-diag there
  std::string ssh_config = {};  // for ssh -F; empty: ssh's own
  std::string config = {};      // policy there; empty: its default
  int level = 1;
  std::string only = "*";  // letters, digits and . * ? , - _ [ ]
  double deadline_s = 60;  // of the checks; ssh gets a little more
};

// The reports in the order of `nodes`, some of them at a time. Throws Error("remote.words", user) for a name or pattern
// that a shell there might misread.
std::vector<Report> run_remote(const std::vector<std::string>& nodes, const RemoteOptions& options);

}  // namespace ms::health
