// Starts the agents, hands each its invitation on standard input (never in its arguments, which everybody on a node can
// read), and ends them.
#pragma once

#include <string>
#include <vector>

#include "net/wire.h"

namespace ms::net {

// How agents are started: "srun" (one step over all nodes), or a command with {node} and {agent} in it, one for each
// node: "ssh {node} {agent}".
class Launcher {
 public:
  // `agent` is the command that runs one: its program and its arguments. Throws Error("net.launch", user) for a command
  // without {agent}.
  Launcher(const std::string& how, const std::vector<std::string>& nodes, const std::vector<std::string>& agent,
           const Invitation& invitation);
  ~Launcher();  // agents have ended, or are ended
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // What a launching command said on standard error of the agents that did not come; a line at most.
  std::string complaint();

 private:
  struct Process {
    int pid = -1;
    UniqueFd errors;
  };
  void start(const std::vector<std::string>& argv, const std::string& input);
  std::vector<Process> processes_;
};

}  // namespace ms::net
