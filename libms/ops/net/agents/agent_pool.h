// The coordinator's side: waits for the agents, has them test pairs, and gives up on those that do not answer. A node
// that never comes, or goes, is a value here, not an error.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "link/acceptor.h"
#include "net/agents/wire.h"
#include "net/measure/schedule.h"

namespace ms::net {

class AgentPool {
 public:
  // Listens on the IPv4 addresses of the interfaces whose names begin with `interface`; Error("net.interface", user)
  // where there are none. `nodes`: who is expected, by name. Raises the limit of open files as far as that takes;
  // Error("net.nodes", user) where it may not.
  AgentPool(std::vector<std::string> nodes, const std::string& interface);

  Invitation invitation() const { return invitation_; }  // for the agents
  // Waits until all agents are here, or for `seconds` at most.
  void gather(double seconds);
  // Members in the order of the nodes; nullptr: it did not come, or is gone.
  const Member* member(int node) const;
  const std::vector<std::string>& nodes() const { return nodes_; }
  std::vector<int> missing() const;

  // Tests all pairs of a round at the same time, each as `spec` says; the first of each pair drives, and
  // where it cannot connect to the second, that tries to connect to it. Returns the results in the order of the pairs,
  // with `a` and `b` set to its two nodes.
  std::vector<PairResult> test(const Round& round, const PairSpec& spec, int source_port = 0);
  // Asks every node for its "counters" or "facts". Returns the answers by node; empty where a node did not answer.
  std::vector<std::string> ask(const std::string& what);
  link::Unauthenticated unauthenticated() const { return acceptor_.unauthenticated(); }  // that came here

 private:
  struct Seat {
    Member member;
    link::Channel control;  // empty: no agent
  };
  AgentPool(std::vector<std::string> nodes, const std::string& interface, std::vector<link::Listener> listeners);
  void seat(link::Acceptor::Accepted agent);
  void lose(int node);
  // order() sends an order. answers() takes answers until each has come or time is up: `missed` gets the others.
  bool order(int node, const TestOrder& order);
  // test() without the second way of those that cannot be connected.
  std::vector<PairResult> drive(const Round& round, const PairSpec& spec, int source_port);
  void answers(std::map<int, int> waiting, double seconds, const std::function<void(TestAnswer)>& take,
               const std::function<void(int node, const std::string& why)>& missed);

  std::vector<std::string> nodes_;
  Invitation invitation_;
  link::Acceptor acceptor_;
  std::vector<Seat> seats_;
  int next_id_ = 1;
};

}  // namespace ms::net
