#include "driver/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/json.h"
#include "driver/agents.h"

namespace ms::driver {
namespace {

using testing::HasSubstr;

// "user:text", good once, as MUNGE's are.
class FakeCredentials final : public Credentials {
 public:
  explicit FakeCredentials(std::string user = "me") : user_(std::move(user)) {}
  std::string seal(const std::string& text) const override { return user_ + ":" + text; }
  std::optional<std::string> open(const std::string& credential, std::string& why) const override {
    if (credential.starts_with(user_ + ":")) return credential.substr(user_.size() + 1);
    why = "a credential of another user";
    return std::nullopt;
  }

 private:
  std::string user_;
};

// As those of a munged that hangs, while `hung`.
class HangingCredentials final : public Credentials {
 public:
  std::string seal(const std::string& text) const override { return real_.seal(text); }
  std::optional<std::string> open(const std::string& credential, std::string& why) const override {
    ++asked;
    hung.wait(true);
    return real_.open(credential, why);
  }
  mutable std::atomic<int> asked = 0;
  std::atomic<bool> hung = false;

 private:
  FakeCredentials real_;
};

class Port : public testing::Test {
 protected:
  link::Address address() { return *link::parse_address(fmt::format("127.0.0.1:{}", hub_.port())); }
  link::Channel connect() { return link::Channel::connect(address(), "hub", link::in_seconds(5)); }
  // Runs the hub until `count` events of the kind are there.
  std::vector<Hub::Event> until(std::size_t count, Hub::Kind kind) {
    std::vector<Hub::Event> wanted;
    for (int i = 0; i < 200 && wanted.size() < count; ++i) {
      for (Hub::Event& event : hub_.wait(0.05)) seen_.push_back(std::move(event));
      std::erase_if(seen_, [&](const Hub::Event& event) {
        const bool is_wanted = event.kind == kind && wanted.size() < count;
        if (is_wanted) wanted.push_back(event);
        return is_wanted;
      });
    }
    EXPECT_EQ(wanted.size(), count);
    wanted.resize(count);
    return wanted;
  }
  // Runs the hub until an intruder has gone; its example.
  std::string until_one_is_rejected() {
    std::string example;
    for (int i = 0; i < 400; ++i) {
      EXPECT_TRUE(hub_.wait(0.05).empty());
      if (const std::size_t gone = hub_.take_rejected(example); gone > 0) {
        EXPECT_EQ(gone, 1U);
        return example;
      }
    }
    ADD_FAILURE() << "no intruder has gone";
    return "";
  }
  void run_for(int rounds) {
    for (int i = 0; i < rounds; ++i) EXPECT_TRUE(hub_.wait(0.02).empty());
  }

  FakeCredentials credentials_;
  FakeClock clock_;
  Hub hub_{0, credentials_, clock_};
  std::vector<Hub::Event> seen_;
};

TEST_F(Port, BothEndsProveThemselvesAndTalk) {
  std::jthread agent([&] {
    link::Channel channel = join(address(), "agent", "n1", credentials_, link::in_seconds(5));
    channel.send_line("one", link::in_seconds(5));
    EXPECT_EQ(channel.receive_line(link::in_seconds(5)), "order");
    channel.send_line("two", link::in_seconds(5));
  });
  const std::vector<Hub::Event> joined = until(1, Hub::Kind::joined);
  EXPECT_EQ(joined[0].role, "agent");
  EXPECT_EQ(joined[0].node, "n1");
  EXPECT_EQ(until(1, Hub::Kind::line)[0].text, "one");
  hub_.send(joined[0].id, "order");
  EXPECT_EQ(until(1, Hub::Kind::line)[0].text, "two");
  EXPECT_EQ(until(1, Hub::Kind::gone)[0].node, "n1");
}

// A user's second job on the same nodes: its agents may come to the port of the first one's driver, which another has
// had before. They prove that they are the user's, and get no seat.
TEST_F(Port, AnAgentOfAnotherJobGetsNoSeat) {
  Agents agents({.job = 7, .nodes = {"n1"}, .agent = {}, .heartbeat = {}, .output_file = "", .status_dir = ""}, hub_,
                clock_, true);
  const auto comes = [&](int job) {
    std::optional<link::Channel> channel;
    std::jthread agent(
        [&] { channel.emplace(join(address(), agent_role(job), "n1", credentials_, link::in_seconds(5))); });
    const Hub::Event joined = until(1, Hub::Kind::joined)[0];
    agent.join();
    EXPECT_FALSE(agents.take(joined));
    return std::pair(std::move(*channel), joined);
  };
  const auto of_another = comes(8);
  EXPECT_FALSE(agents.has("n1"));
  const auto own = comes(7);
  EXPECT_TRUE(agents.has("n1"));
  const auto late = comes(8);
  EXPECT_TRUE(agents.has("n1")) << "the seat stays with the agent of this job";
  Hub::Event says = late.second;
  says.kind = Hub::Kind::line;
  says.text = "{}";
  EXPECT_FALSE(agents.take(says));
  EXPECT_EQ(agents.connected(), 1U);
}

TEST_F(Port, OneThatIsTakenIsAnotherOne) {
  const Hub second(hub_.port(), credentials_, clock_);
  EXPECT_NE(second.port(), hub_.port());
  EXPECT_GT(second.port(), 0);
}

TEST_F(Port, AnotherUserIsRejectedAtEitherEnd) {
  const FakeCredentials other("you");
  std::jthread intruder([&] { EXPECT_THROW(join(address(), "agent", "n1", other, link::in_seconds(5)), Error); });
  EXPECT_THAT(until_one_is_rejected(), HasSubstr("a credential of another user"));
}

TEST_F(Port, ADriverOfAnotherUserIsNotTrusted) {
  const FakeCredentials other("you");
  Hub impostor(0, other, clock_);
  std::jthread serve([&] {
    for (int i = 0; i < 40; ++i) impostor.wait(0.05);
  });
  EXPECT_THROW(join(*link::parse_address(fmt::format("127.0.0.1:{}", impostor.port())), "agent", "n1", credentials_,
                    link::in_seconds(2)),
               Error);
}

TEST_F(Port, ACredentialForAnotherConnectionIsRefused) {
  link::Channel channel = connect();
  run_for(2);
  const std::string nonce = Json::parse(channel.receive_line(link::in_seconds(5))).get<std::string>("nonce");
  Greeting greeting{.role = "agent", .node = "n1", .nonce = "x", .credential = ""};
  greeting.credential = credentials_.seal(joiner_text(greeting, nonce, address()));
  link::Channel replay = connect();
  run_for(2);
  replay.send_line(to_json(greeting), link::in_seconds(5));
  EXPECT_THAT(until_one_is_rejected(), HasSubstr("not for this connection"));
  greeting.node = "n2";  // sealed for n1
  channel.send_line(to_json(greeting), link::in_seconds(5));
  EXPECT_THAT(until_one_is_rejected(), HasSubstr("not for this connection"));
}

// A user is lured to the port of an attacker, who passes on all that is said to the user's own driver.
TEST_F(Port, AProofThatIsRelayedToAnotherDriverIsRefused) {
  link::Listener attacker(*link::parse_address("127.0.0.1:0"));
  const link::Address lure = *link::parse_address(fmt::format("127.0.0.1:{}", attacker.port()));
  std::jthread victim([&] { EXPECT_THROW(join(lure, "client", "", credentials_, link::in_seconds(5)), Error); });
  pollfd arrival{.fd = attacker.fd(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&arrival, 1, 5000), 1);
  std::optional<link::Channel> from_victim = attacker.accept_now();
  ASSERT_TRUE(from_victim);
  link::Channel to_driver = connect();
  run_for(2);
  from_victim->send_line(to_driver.receive_line(link::in_seconds(5)), link::in_seconds(5));
  to_driver.send_line(from_victim->receive_line(link::in_seconds(5)), link::in_seconds(5));
  EXPECT_THAT(until_one_is_rejected(), HasSubstr("not for this connection"));
  from_victim->close_now();
}

TEST_F(Port, LinesThatAnotherSendsOrRepeatsEndTheConnection) {
  const auto joined = [&] {
    std::optional<link::Channel> channel;
    std::jthread agent([&] { channel = join(address(), "agent", "n1", credentials_, link::in_seconds(5)); });
    until(1, Hub::Kind::joined);
    agent.join();
    return *std::move(channel);
  };
  const auto send_raw = [](link::Channel& channel, const std::string& text) {
    channel.send(std::as_bytes(std::span(text)), link::in_seconds(5));
  };
  link::Channel another = joined();
  send_raw(another, "{\"order\": \"kill\"}\n");
  EXPECT_EQ(until(1, Hub::Kind::gone)[0].node, "n1");
  link::Channel repeated = joined();
  const std::string line = repeated.framed("one");
  send_raw(repeated, line);
  EXPECT_EQ(until(1, Hub::Kind::line)[0].text, "one");
  send_raw(repeated, line);
  EXPECT_EQ(until(1, Hub::Kind::gone)[0].node, "n1");
  EXPECT_TRUE(seen_.empty());
}

// Whoever is there already is heard; whoever comes waits, however long that takes, and an intruder's credential stops
// nobody else for good.
TEST(HangingMunge, KeepsOnlyNewOnesWaiting) {
  HangingCredentials credentials;
  FakeClock clock;
  Hub hub(0, credentials, clock);
  const FakeCredentials own;
  const link::Address address = *link::parse_address(fmt::format("127.0.0.1:{}", hub.port()));
  std::vector<Hub::Event> seen;
  const auto until = [&](const auto& is_so) {
    for (int i = 0; i < 1000 && !is_so(); ++i) {
      for (Hub::Event& event : hub.wait(0.02)) seen.push_back(std::move(event));
    }
    ASSERT_TRUE(is_so());
  };
  std::atomic<bool> speak = false;
  std::jthread first([&] {
    link::Channel channel = join(address, "agent", "n1", own, link::in_seconds(20));
    speak.wait(false);
    channel.send_line("still here", link::in_seconds(20));
  });
  until([&] { return !seen.empty(); });
  credentials.hung = true;
  std::jthread second([&] { join(address, "agent", "n2", own, link::in_seconds(60)); });
  until([&] { return credentials.asked == 2; });
  clock.advance_s(Hub::kProof_s + 1);
  speak = true, speak.notify_all();
  const auto has = [&](Hub::Kind kind, const std::string& node) {
    return std::ranges::any_of(seen, [&](const Hub::Event& e) { return e.kind == kind && e.node == node; });
  };
  until([&] { return has(Hub::Kind::line, "n1"); });
  EXPECT_FALSE(has(Hub::Kind::joined, "n2"));
  credentials.hung = false, credentials.hung.notify_all();
  until([&] { return has(Hub::Kind::joined, "n2"); });
  std::string example;
  EXPECT_EQ(hub.take_rejected(example), 0U) << example;
}

TEST_F(Port, GarbageAndLongLinesAreDropped) {
  for (const std::string& text :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("{}\n"), std::string("{\"role\": 1}\n"),
        std::string(100000, 'x'), std::string(10000, '[') + "\n"}) {
    link::Channel channel = connect();
    channel.send(std::as_bytes(std::span(text)), link::in_seconds(5));
    SCOPED_TRACE(text.substr(0, 20));
    until_one_is_rejected();
  }
}

TEST_F(Port, AFloodFromOneHostEvictsItsOwnConnections) {
  const link::ConnectOptions elsewhere{.source_port = 0, .from = link::parse_address("127.0.0.2:0")};
  link::Channel slow = link::Channel::connect(address(), "hub", link::in_seconds(5), elsewhere);
  run_for(2);
  std::vector<link::Channel> flood;
  for (std::size_t i = 0; i < 3 * Hub::kLeastUnproven; ++i) {
    flood.push_back(connect());
    if (i % 32 == 0) hub_.wait(0);
  }
  run_for(20);
  std::string example;
  EXPECT_GE(hub_.take_rejected(example), 2 * Hub::kLeastUnproven);
  EXPECT_NE(slow.receive_line(link::in_seconds(5)), "");  // the nonce
  EXPECT_EQ(slow.poll_line(), std::nullopt);              // it would throw, were the connection closed
}

TEST_F(Port, AFloodOfSilentConnectionsLetsAnAgentIn) {
  std::vector<link::Channel> intruders;
  for (std::size_t i = 0; i < 3 * Hub::kLeastUnproven; ++i) {
    intruders.push_back(connect());
    if (i % 32 == 0) hub_.wait(0);
  }
  std::jthread agent([&] { join(address(), "agent", "n1", credentials_, link::in_seconds(10)); });
  EXPECT_EQ(until(1, Hub::Kind::joined)[0].node, "n1");
  std::string example;
  EXPECT_GE(hub_.take_rejected(example), 2 * Hub::kLeastUnproven);
}

TEST_F(Port, SilentConnectionsAreClosedAfterAWhile) {
  const link::Channel channel = connect();
  run_for(2);
  clock_.advance_s(Hub::kProof_s + 1);
  run_for(2);
  std::string example;
  EXPECT_EQ(hub_.take_rejected(example), 1U);
}

TEST(Wire, ComesBackAsItWasSent) {
  Report report{.number = 7,
                .attempt = 2,
                .ranks = {{.rank = 3,
                           .pid = 17,
                           .alive = false,
                           .state = 'Z',
                           .step = 9,
                           .section = "save",
                           .section_s = 0.5,
                           .cpu = 1.5,
                           .numbers = {{"loss", 2.5}}}}};
  report.took = {{"step", 0.25}};
  report.segments = 70;
  report.losses = {{.peer = "10.0.0.2", .sent = 50, .again = 3, .looks = 2}};
  report.addresses = {"10.0.0.1"};
  report.unheard = "/tmp/x is not this user's alone";
  report.finding = "gpu.ecc gpu 3: 4 errors";
  EXPECT_EQ(to_json(*read_agent(to_json(report)).report), to_json(report));
  const Answer answer{.to = "look",
                      .attempt = 2,
                      .count = 1,
                      .tasks = {{.rank = 1, .pid = 2, .state = 'T', .cpu = 0.25, .waits_in = "poll", .stack = "a\nb"}}};
  EXPECT_EQ(to_json(*read_agent(to_json(answer)).answer), to_json(answer));
  const Order order{.what = "kill", .attempt = 4};
  EXPECT_EQ(to_json(read_order(to_json(order))), to_json(order));
  for (const char* text : {"", "{", "[]", "{}", "{\"report\": 1}", "{\"order\": 1, \"attempt\": 1}",
                           "{\"report\": 1, \"attempt\": 1, \"ranks\": [1]}",
                           "{\"report\": 1, \"attempt\": 1, \"ranks\": [], \"losses\": [1]}"}) {
    EXPECT_THROW(read_agent(text), Error) << text;
    EXPECT_THROW(read_order(text), Error) << text;
  }
}

}  // namespace
}  // namespace ms::driver
