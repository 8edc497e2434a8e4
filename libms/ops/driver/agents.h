// The agents of an allocation: started, connected, started again where one went, given orders. Asks the kernels of
// nodes whose agents are silent.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "driver/command.h"
#include "driver/hub.h"
#include "driver/prober.h"

namespace ms::driver {

struct AgentsOptions {
  int job = 0;
  std::vector<std::string> nodes;
  std::vector<std::string> agent;  // the command of an agent
  std::string heartbeat;           // the socket that they make: told in the environment, which other users do not see
  std::string output_file;         // of what starting them says
  std::string status_dir;
};

class Agents {
 public:
  // `hub` and `clock` outlive it. Agents of an earlier driver connect by themselves: they have kFirst_s for it.
  Agents(AgentsOptions options, Hub& hub, Clock& clock, bool expects_agents);

  // Returns what an agent said; nullopt: it came, went, or is none of ours.
  std::optional<AgentSays> take(const Hub::Event& event);
  // Starts agents where there is none, but not on nodes of `without`.
  void tick(const std::set<std::string>& without);
  void order(const std::string& node, const Order& order);
  void order(const std::vector<std::string>& nodes, const Order& order);
  bool has(const std::string& node) const { return seats_.at(node).id != 0; }
  std::size_t connected() const;
  // Asks the kernels of these nodes; returns which of those that were asked before have answered.
  std::set<std::string> ask(const std::vector<std::string>& silent);
  // Tells all agents to end, and waits a moment for the commands that started them.
  void stop();

 private:
  struct Seat {
    Hub::Id id = 0;  // of its connection; 0: none
    std::optional<link::Address> address = {};
    double started_s = -1e9;
  };
  void start(const std::vector<std::string>& nodes);
  void note(const std::string& node, const std::string& what);
  void log_changes();

  AgentsOptions options_;
  Hub& hub_;
  Clock& clock_;
  const double start_s_;  // until a node whose agent has not come gets another one
  std::map<std::string, Seat> seats_;
  std::vector<LongCommand> commands_;
  Prober prober_;
  int starts_ = 0;
  std::map<std::string, std::vector<std::string>> changes_;  // nodes by what happened to their agents, not yet logged
  double changed_s_ = 0;                                     // when the first of them did
};

}  // namespace ms::driver
