// ms-diag on other nodes, by ssh: drained nodes too, which srun refuses. Every node runs its own ms-diag from the same
// path; a node that does not answer is a value. For checks, a node that does not answer, or answers nonsense, is a
// report of its own with a broken result.
#pragma once

#include <string>
#include <vector>

#include "health/commands/report.h"

namespace ms::health {

struct RemoteCommand {
  std::string program = {};     // absolute path of ms-diag there; empty: that of this one
  std::string ssh_config = {};  // for ssh -F; empty: ssh's own
  // The words of its command line: letters, digits and / . _ + - , : = @, and the * ? [ ] of patterns.
  std::vector<std::string> words = {};
  double deadline_s = 60;  // of the command; ssh gets a little more
};

struct RemoteAnswer {
  std::string node = {};
  std::string out = {};  // what it printed as its result
  std::string why = {};  // there is no result; empty: there is
  int status = 3;        // its exit status; that of Nagios' unknown where there is none
  double asked_wall_s = 0, answered_wall_s = 0;
};

// The answers in the order of `nodes`, some of them at a time. Throws Error("remote.words", user) for a name or word
// that a shell there might misread.
std::vector<RemoteAnswer> ask_nodes(const std::vector<std::string>& nodes, const RemoteCommand& command);

struct RemoteOptions {
  std::string program = {};     // as of RemoteCommand
  std::string ssh_config = {};  // as of RemoteCommand
  std::string config = {};      // policy there; empty: its default
  int level = 1;
  std::string only = "*";
  double deadline_s = 60;  // of the checks
  Asked asked = {};
  double since_wall_s = 0;  // kernel messages from before do not count
};

// ms-diag run there: the reports in the order of `nodes`. Throws what ask_nodes() throws.
std::vector<Report> run_remote(const std::vector<std::string>& nodes, const RemoteOptions& options);

// Runs a command there and prints its results, each line behind its node's name; `json`: an array of {"node", "status",
// "said", "error"}, where `said` is the result as JSON, an array where it is several lines. Returns the worst status.
int print_remote(const std::vector<std::string>& nodes, const RemoteCommand& command, bool json);

}  // namespace ms::health
