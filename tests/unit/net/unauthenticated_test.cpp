// Connections without the secret of a check: they take no thread and bounded room, keep nobody out, and are never the
// reason to blame a node.
#include <gtest/gtest.h>

#include <fstream>
#include <list>
#include <thread>

#include "link/acceptor.h"
#include "link/secret.h"
#include "net/agents/agent.h"
#include "net/agents/agent_pool.h"
#include "net/measure/workers.h"
#include "net/report/report.h"

namespace ms::net {
namespace {

link::Address on(const std::string& host, int port = 0) { return link::parse_address(host + ":0")->with_port(port); }

link::Channel connect_from(const std::string& host, int port) {
  return link::Channel::connect(on("127.0.0.1", port), "other", link::in_seconds(5),
                                {.source_port = 0, .from = on(host)});
}

int threads_here() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("Threads:")) return std::stoi(line.substr(8));
  return -1;
}

struct Door {
  explicit Door(std::size_t most) {
    std::vector<link::Listener> listeners;
    port = listeners.emplace_back(on("127.0.0.1")).port();
    acceptor.emplace(std::move(listeners), "secret", most);
  }
  int port = 0;
  std::optional<link::Acceptor> acceptor;
};

TEST(Unauthenticated, AHostEvictsItsOwn) {
  Door door(8);
  link::Channel agent = connect_from("127.0.0.1", door.port);
  door.acceptor->accept(link::in_seconds(0.05));  // takes it in
  std::list<link::Channel> unauthenticated;
  for (int i = 0; i < 50; ++i) {
    unauthenticated.push_back(connect_from("127.0.0.2", door.port));
    door.acceptor->accept(link::in_seconds(0));
  }
  EXPECT_FALSE(door.acceptor->accept(link::in_seconds(0.05)));
  EXPECT_EQ(door.acceptor->unauthenticated().evicted, 50 + 1 - 8);
  std::jthread greeting([&] { link::greet(agent, "secret", "hello", link::in_seconds(5)); });
  const std::optional<link::Acceptor::Accepted> accepted = door.acceptor->accept(link::in_seconds(5));
  ASSERT_TRUE(accepted);
  EXPECT_EQ(accepted->greeting, "hello");
}

TEST(Unauthenticated, ThoseWhoSpeakAreTurnedAway) {
  Door door(8);
  std::list<link::Channel> unauthenticated;
  for (const std::string said : {"", "a b c", "GET / HTTP/1.1", "x x x x"}) {
    link::Channel& intruder = unauthenticated.emplace_back(connect_from("127.0.0.2", door.port));
    intruder.send_line(said, link::in_seconds(1));
  }
  link::Channel& endless = unauthenticated.emplace_back(connect_from("127.0.0.2", door.port));
  const std::string bytes(2 * link::kMaxGreeting, 'x');
  endless.send(std::as_bytes(std::span(bytes)), link::in_seconds(1));
  EXPECT_FALSE(door.acceptor->accept(link::in_seconds(0.5)));
  EXPECT_EQ(door.acceptor->unauthenticated().connections, 5);
  EXPECT_EQ(door.acceptor->unauthenticated().evicted, 0);
}

// A proof is of one nonce: what was heard on one connection proves nothing on another.
TEST(Unauthenticated, AReplayedProofIsNone) {
  Door door(8);
  link::Channel agent = connect_from("127.0.0.1", door.port), replayed = connect_from("127.0.0.1", door.port);
  std::jthread acceptor([&] { EXPECT_FALSE(door.acceptor->accept(link::in_seconds(0.5))); });
  link::Listener between(on("127.0.0.1"));
  link::Channel victim = link::Channel::connect(on("127.0.0.1", between.port()), "other", link::in_seconds(1));
  link::Channel tapped;
  while (!tapped) {
    if (std::optional<link::Channel> channel = between.accept_now()) tapped = *std::move(channel);
  }
  tapped.send_line(agent.receive_line(link::in_seconds(1)), link::in_seconds(1));
  std::jthread greeting([&] { EXPECT_THROW(link::greet(victim, "secret", "hello", link::in_seconds(1)), Error); });
  const std::string proof = tapped.receive_line(link::in_seconds(1));
  replayed.receive_line(link::in_seconds(1));
  replayed.send_line(proof, link::in_seconds(1));
  EXPECT_THROW(replayed.receive_line(link::in_seconds(2)), Error);
  tapped.close_now();
}

TEST(Unauthenticated, AThousandSilentOnesKeepNobodyOut) {
  std::list<std::jthread> agents;
  std::list<link::Channel> unauthenticated;
  AgentPool pool({"n1", "n2"}, "lo");
  const int port = link::parse_address(pool.invitation().addresses.at(0))->port();
  const int threads = threads_here();
  for (int i = 0; i < 1000; ++i) unauthenticated.push_back(connect_from("127.0.0.1", port));
  Invitation invitation = pool.invitation();
  invitation.node = "n1";
  agents.emplace_back([invitation] { run_agent({.invitation = invitation}); });
  pool.gather(1);
  EXPECT_EQ(pool.missing(), std::vector<int>{1});  // nobody is n2
  EXPECT_LE(threads_here(), threads + 2);          // the agent's
  EXPECT_EQ(pool.unauthenticated().connections, 1000);
  EXPECT_EQ(pool.unauthenticated().evicted, 0);
  EXPECT_EQ(read_unauthenticated(pool.ask("unauthenticated").at(0)).connections, 0);
}

TEST(Unauthenticated, ThePoolListensOnTheInterfaceOnly) {
  AgentPool pool({"n1"}, "lo");
  ASSERT_EQ(pool.invitation().addresses.size(), 1U);
  const link::Address here = *link::parse_address(pool.invitation().addresses[0]);
  EXPECT_EQ(here.host(), "127.0.0.1");
  EXPECT_NO_THROW(link::Channel::connect(here, "pool", link::in_seconds(1)));
  EXPECT_THROW(link::Channel::connect(on("127.0.0.2", here.port()), "pool", link::in_seconds(1)), Error);
  EXPECT_THROW(AgentPool({"n1"}, "no-such"), Error);
}

TEST(Unauthenticated, NobodyIsBlamedForThem) {
  Checked checked;
  checked.command = "locate";
  checked.nodes = {"n1", "n2", "n3"};
  checked.missing = {"n4"};
  checked.faults = {{.culprit = {.kind = Kind::node, .a = 1, .b = -1, .bad = 2, .of = 2},
                     .symptoms = {Symptom::silent},
                     .normal = {},
                     .words = "closed the connection"}};
  struct Row {
    std::map<std::string, link::Unauthenticated> unauthenticated;
    std::vector<std::string> codes;
    int status;
    bool n4_in_verdict, n2_in_verdict;
  };
  const link::Unauthenticated few{.connections = 9, .evicted = 0}, crowd{.connections = 5000, .evicted = 3000};
  const Row rows[] = {
      {{}, {"net.silent", "net.silent"}, 2, true, true},
      {{{kCoordinator, few}, {"n2", few}}, {"net.silent", "net.silent"}, 2, true, true},
      {{{kCoordinator, crowd}}, {"net.unauthenticated", "net.silent"}, 2, false, true},
      {{{"n2", crowd}}, {"net.silent", "net.unauthenticated"}, 2, true, false},
      {{{"n1", crowd}}, {"net.silent", "net.silent"}, 2, true, true},
      {{{kCoordinator, crowd}, {"n2", crowd}}, {"net.unauthenticated", "net.unauthenticated"}, 1, false, false},
  };
  for (const Row& row : rows) {
    checked.unauthenticated = row.unauthenticated;
    std::vector<std::string> codes;
    for (const Finding& finding : findings(checked)) codes.push_back(finding.code);
    EXPECT_EQ(codes, row.codes);
    EXPECT_EQ(nagios_status(checked), row.status);
    const std::string json = as_json(checked);
    EXPECT_EQ(json.find("\"who\": \"n4\"") != std::string::npos, row.n4_in_verdict);
    EXPECT_EQ(json.find("\"who\": \"n2\"") != std::string::npos, row.n2_in_verdict);
  }
  EXPECT_NE(as_text(checked).find("5000 connections to n2 without the secret"), std::string::npos);
  // What was measured stays a finding: unauthenticated do not excuse a slow way.
  checked.faults[0].symptoms = {Symptom::bandwidth};
  EXPECT_EQ(findings(checked)[1].code, "net.slow");
}

}  // namespace
}  // namespace ms::net
