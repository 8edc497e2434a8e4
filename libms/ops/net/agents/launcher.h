// Starts the agents, hands each its invitation on standard input (never in its arguments, which everybody on a node can
// read), and ends them.
#pragma once

#include <string>
#include <vector>

#include "net/agents/wire.h"

namespace ms::net {

// How agents are started: "srun", or a command for each node with {node} and {agent} in it: "ssh {node} {agent}". srun
// is started once for each node of up to kAloneUpTo, since a step ends as a whole when one of its nodes does not
// answer; for more nodes once for every kAloneUpTo of them.
class Launcher {
 public:
  static constexpr std::size_t kAloneUpTo = 64;

  // `agent` is the command that runs one: its program and its arguments. Throws Error("net.launch", user) for a command
  // without {agent}.
  Launcher(std::string how, std::vector<std::string> agent, Invitation invitation);
  ~Launcher();  // agents have ended, or are ended
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  // Throws Error("net.launch", node) where a command cannot be started.
  void start(const std::vector<std::string>& nodes);
  // The last line that the launching command of one of these nodes said on standard error; empty: nothing.
  std::string complaint(const std::vector<std::string>& nodes);

 private:
  struct Process {
    int pid = -1;
    std::vector<std::string> nodes;
    UniqueFd errors;
    std::string said;  // the end of it
  };
  void start(const std::vector<std::string>& argv, const std::vector<std::string>& nodes, const Invitation& invitation);
  static void listen(Process& process);

  std::string how_;
  std::vector<std::string> agent_;
  Invitation invitation_;
  std::vector<Process> processes_;
};

}  // namespace ms::net
