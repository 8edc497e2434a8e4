// The protocol between the coordinator and its agents, as lines of JSON.
#pragma once

#include <string>
#include <vector>

#include "link/acceptor.h"
#include "link/channel.h"
#include "net/measure/pair.h"

namespace ms::net {

// Options an agent is started with.
struct Invitation {
  std::vector<std::string> addresses;  // of the coordinator, "10.0.0.1:4000"
  std::string secret;
  std::string interface =
      {};                 // prefix of the names of those that may be used; empty: whichever leads to the coordinator
  std::string node = {};  // what the agent is called; empty: it knows
  bool rdma = false;      // should the agent look for what measures RDMA?
  std::string hcas = {};  // of these adapters, a list in NCCL's form; empty: of all
};

// An agent's introduction to the coordinator.
struct Member {
  std::string node;
  link::Address address;  // that it serves others at
  std::string interface;
  int mtu = 0;
  double link_gbps = 0;      // as the interface says, or the RDMA port if that was asked for; 0: not told
  std::string no_rdma = {};  // why it cannot measure RDMA; empty: it can, or was not asked
};

struct TestOrder {
  int id = 0;
  std::string ask =
      {};  // "counters", "facts", "unauthenticated": tells this of itself; empty: tests a pair, with the agent below
  std::string address = {};
  std::string node = {};
  int source_port = 0;
  PairSpec spec = {};
};
struct TestAnswer {
  int id = 0;
  PairResult result = {};
  std::string text = {};  // of what was asked
};

std::string to_json(const Invitation& invitation);
std::string to_json(const Member& member);
std::string to_json(const TestOrder& order);
std::string to_json(const TestAnswer& answer);
std::string to_json(const link::Unauthenticated& unauthenticated);
// Throw Error("net.wire", fabric) for a malformed line.
Invitation read_invitation(const std::string& line);
Member read_member(const std::string& line);
TestOrder read_order(const std::string& line);
TestAnswer read_answer(const std::string& line);
link::Unauthenticated read_unauthenticated(const std::string& text);

}  // namespace ms::net
