// Agents on the loopback of this machine: what they measure, whom they turn away, and what becomes of one that dies.
#include "net/agents/peer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <list>
#include <thread>

#include "link/acceptor.h"
#include "link/secret.h"
#include "net/agents/agent.h"
#include "net/agents/agent_pool.h"
#include "support/errors.h"

namespace ms::net {
namespace {

link::Address loopback() { return *link::parse_address("127.0.0.1:0"); }

PairSpec quick() { return {.pings = 20, .seconds = 0.05, .datagrams = 200, .datagrams_s = 0.05}; }

struct Server {
  explicit Server(std::string secret) : self{std::move(secret), loopback(), "lo", Sysroot("/")} {
    std::vector<link::Listener> listeners;
    self.port = port = listeners.emplace_back(loopback()).port();
    acceptor.emplace(std::move(listeners), self.secret);
    thread = std::jthread([this](const std::stop_token& stop) {
      std::vector<std::jthread> serving;
      while (!stop.stop_requested()) {
        std::optional<link::Acceptor::Accepted> accepted = acceptor->accept(link::in_seconds(0.05));
        if (!accepted) continue;
        serving.emplace_back([this, peer = std::make_shared<link::Acceptor::Accepted>(*std::move(accepted))] {
          try {
            serve_peer(std::move(peer->channel), peer->greeting, self);
          } catch (const Error&) {  // the other end sees that the connection is closed
          }
        });
      }
    });
  }
  link::Address address() const { return loopback().with_port(port); }

  Self self;
  int port = 0;
  std::optional<link::Acceptor> acceptor;
  std::jthread thread;
};

TEST(Peer, MeasuresAPair) {
  const std::string secret = link::new_secret();
  Server server(secret);
  for (const bool at_once : {true, false}) {
    PairSpec spec = quick();
    spec.both_at_once = at_once;
    spec.flows = at_once ? 2 : 1;
    const PairResult result = test_pair(server.self, server.address(), "other", spec);
    EXPECT_EQ(result.error, "");
    EXPECT_GT(result.least_us, 0);
    EXPECT_LE(result.least_us, result.p50_us);
    EXPECT_LE(result.p50_us, result.p99_us);
    EXPECT_GE(result.cpu_wait_us, 0);
    for (const Way& way : {result.there, result.back}) {
      EXPECT_GT(way.gbps, 0.01);
      EXPECT_GE(way.cpu_wait, 0);
      EXPECT_LE(way.cpu_wait, 1);
      EXPECT_EQ(way.sent, 200);
      EXPECT_EQ(way.lost, 0);
      EXPECT_GT(way.mtu, 1000);
      EXPECT_TRUE(way.large_pass);
    }
  }
}

TEST(Peer, BothConnectToEachOther) {
  Server server(link::new_secret());
  const PairSpec nothing{.pings = 0, .seconds = 0, .datagrams = 0, .sizes = false};
  PairResult result = test_pair(server.self, server.address(), "other", nothing);
  EXPECT_EQ(result.error + result.there.unreached + result.back.unreached, "");
  Self deaf = server.self;  // its port refuses
  {
    link::Listener closed(loopback());
    deaf.port = closed.port();
  }
  result = test_pair(deaf, server.address(), "other", nothing);
  EXPECT_EQ(result.error + result.there.unreached, "");
  EXPECT_NE(result.back.unreached.find("refused"), std::string::npos) << result.back.unreached;
  result = test_pair(server.self, loopback().with_port(deaf.port), "n5", nothing);
  EXPECT_NE(result.there.unreached.find("n5"), std::string::npos) << result.there.unreached;
  EXPECT_EQ(result.back.unreached, "");
}

TEST(Peer, APortInUseIsNamedWithWhatToDo) {
  const link::Listener first(loopback());
  const Error taken = ms::test::thrown_by([&] { link::Listener(loopback().with_port(first.port())); });
  EXPECT_NE(taken.message().find(":" + std::to_string(first.port())), std::string::npos) << taken.message();
  EXPECT_NE(taken.hint().find("another process listens there"), std::string::npos) << taken.hint();
}

TEST(Peer, ABoundOnTheRateIsKept) {
  Server server(link::new_secret());
  const PairSpec spec{.pings = 0, .seconds = 0.3, .back = false, .max_gbps = 0.1, .datagrams = 0, .sizes = false};
  const PairResult result = test_pair(server.self, server.address(), "other", spec);
  EXPECT_EQ(result.error, "");
  EXPECT_LT(result.there.gbps, 0.15);
  EXPECT_GT(result.there.gbps, 0.03);
  EXPECT_LT(result.back.gbps, 0);
}

TEST(Peer, WhoDoesNotKnowTheSecretGetsNothing) {
  Server server(link::new_secret());
  Self intruder = server.self;
  intruder.secret = link::new_secret();
  const PairResult result = test_pair(intruder, server.address(), "other", quick());
  EXPECT_NE(result.error, "");
  EXPECT_LT(result.there.gbps, 0);
  EXPECT_GT(server.acceptor->unauthenticated().connections, 0);
}

TEST(Peer, WhatIsNotUnderstoodIsRefused) {
  const std::string secret = link::new_secret();
  Server server(secret);
  for (const std::string greeting :
       {"", "flow", "flow in -1 1 0", "flow in 1e9 1 0", "flow out 1 nonsense 0", "hallo"}) {
    link::Channel channel = link::Channel::connect(server.address(), "server", link::in_seconds(2));
    link::greet(channel, secret, greeting, link::in_seconds(2));
    EXPECT_THROW(channel.receive_line(link::in_seconds(2)), Error) << greeting;
  }
  link::Channel channel = link::Channel::connect(server.address(), "server", link::in_seconds(2));
  link::greet(channel, secret, "session", link::in_seconds(2));
  channel.send_line("datagrams 70000 1 10 1", link::in_seconds(2));
  EXPECT_THROW(channel.receive_line(link::in_seconds(2)), Error);
}

TEST(Peer, NobodyAtTheOtherEndIsSaid) {
  Server server(link::new_secret());
  int free_port = 0;
  {
    link::Listener closed(loopback());
    free_port = closed.port();
  }
  const PairResult result = test_pair(server.self, loopback().with_port(free_port), "n5", quick());
  EXPECT_NE(result.error.find("n5"), std::string::npos) << result.error;
  EXPECT_NE(result.error.find("refused"), std::string::npos) << result.error;
}

struct Agent {
  Agent(const AgentPool& pool, const std::string& name) {
    Invitation invitation = pool.invitation();
    invitation.node = name;
    thread = std::jthread([invitation] { run_agent({.invitation = invitation}); });
  }
  std::jthread thread;
};

TEST(AgentPool, TestsRoundsAndMissesWhoIsNotThere) {
  std::list<Agent> agents;
  {
    AgentPool pool({"n1", "n2", "n3", "n4"}, "lo");
    for (const char* name : {"n1", "n2", "n3"}) agents.emplace_back(pool, name);
    pool.gather(1.5);
    EXPECT_EQ(pool.missing(), std::vector<int>{3});
    const std::vector<PairResult> results = pool.test({{0, 1}, {2, 3}}, quick());
    ASSERT_EQ(results.size(), 2U);
    EXPECT_EQ(results[0].error, "");
    EXPECT_GT(results[0].there.gbps, 0);
    EXPECT_EQ(results[1].error, "n4 is gone");
    EXPECT_EQ(results[1].at_fault, 3);
  }  // the agents see that the coordinator is gone
}

TEST(AgentPool, AnAgentThatDiesIsAtFaultAtOnce) {
  std::list<Agent> agents;  // end after the pool does
  AgentPool pool({"n1", "n2"}, "lo");
  agents.emplace_back(pool, "n1");
  std::jthread dying([&] {
    const Invitation invitation = pool.invitation();
    link::Channel channel =
        link::Channel::connect(*link::parse_address(invitation.addresses.at(0)), "coordinator", link::in_seconds(2));
    link::greet(channel, invitation.secret,
                to_json(Member{.node = "n2", .address = loopback().with_port(1), .interface = "lo"}),
                link::in_seconds(2));
    channel.receive_line(link::in_seconds(10));  // an order
  });
  pool.gather(3);
  ASSERT_TRUE(pool.missing().empty());
  const std::vector<PairResult> results = pool.test({{1, 0}}, quick());
  EXPECT_EQ(results[0].at_fault, 1);
  EXPECT_NE(results[0].error, "");
  EXPECT_EQ(pool.missing(), std::vector<int>{1});
}

}  // namespace
}  // namespace ms::net
