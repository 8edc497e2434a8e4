// Agents on the nodes of a check: started, waited for, asked and ended.
#pragma once

#include <optional>

#include "net/agents/agent_pool.h"
#include "net/agents/launcher.h"
#include "net/measure/workers.h"

namespace ms::net {

struct AgentWorkersOptions {
  std::vector<std::string> nodes;  // by name
  std::string launch = "srun";     // see launcher.h
  std::vector<std::string> agent;  // the command of an agent
  std::string interface = {};      // prefix of the names of those to be used
  double wait_s = 30;              // for agents
  bool rdma = false;               // those who can measure RDMA, and only those
  std::string hcas = {};           // see wire.h
};

class AgentWorkers : public Workers {
 public:
  // Throws Error("net.launch"), Error("net.interface", user), Error("net.nodes", user); see pool.h and launcher.h.
  explicit AgentWorkers(const AgentWorkersOptions& options);

  double link_gbps(int node) const override;
  std::vector<std::string> not_run() const override { return not_run_; }
  std::map<std::string, link::Unauthenticated> unauthenticated() override;
  std::vector<PairResult> test(const Round& round, const PairSpec& spec, int source_port = 0) override;
  // Asks every node for its "counters" or "facts". Returns the answers by node of the options; empty: no answer.
  std::vector<std::string> ask(const std::string& what) { return pool_.ask(what); }

 private:
  std::optional<Launcher> launcher_;  // goes last: agents end when the pool's connections do
  AgentPool pool_;
  std::vector<std::string> not_run_;
  std::vector<int> present_;  // nodes of the pool, by their place among those that came
};

}  // namespace ms::net
