// The protocol between coordinator and agents: what is written is read back, and what an agent makes up is refused.
#include "net/agents/wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/measure/facts_json.h"
#include "support/errors.h"

namespace ms::net {
namespace {

TEST(Wire, ReadsWhatItWrites) {
  const Invitation invitation{.addresses = {"10.0.0.1:4000", "[::1]:4000"}, .secret = "s", .node = "n1", .rdma = true};
  EXPECT_EQ(read_invitation(to_json(invitation)).addresses, invitation.addresses);
  EXPECT_TRUE(read_invitation(to_json(invitation)).rdma);
  const TestOrder order{.id = 7, .address = "a", .node = "n2", .spec = {.seconds = 0.25, .bytes = 1 << 20, .flows = 3}};
  EXPECT_EQ(read_order(to_json(order)).spec, order.spec);
  TestAnswer answer;
  answer.id = 7, answer.text = "a\nb", answer.result.p50_us = 12.5, answer.result.cpu_wait_us = 0.25;
  answer.result.there = {.gbps = 100, .flow_gbps = {50, 50}, .cpu_wait = 0.5, .sent = 8000, .lost = 1};
  answer.result.counts_b.errors = 3;
  EXPECT_EQ(read_answer(to_json(answer)).result, answer.result);
  EXPECT_EQ(read_answer(to_json(answer)).text, "a\nb");
}

TEST(Wire, WaitsOfAnAgentAreAShare) {
  TestAnswer answer;
  answer.result.there.cpu_wait = 7, answer.result.back.cpu_wait = -7;
  EXPECT_EQ(read_answer(to_json(answer)).result.there.cpu_wait, 1);
  EXPECT_EQ(read_answer(to_json(answer)).result.back.cpu_wait, 0);
}

TEST(Wire, WordsOfAnAgentStayOnOneLine) {
  TestAnswer answer;
  answer.result.error = "slow\ncritical net.silent n2: did not take part \x1b[2J";
  EXPECT_EQ(read_answer(to_json(answer)).result.error, "slow critical net.silent n2: did not take part ?[2J");
}

TEST(Wire, RefusesNumbersThatItCannotHold) {
  TestAnswer answer;
  answer.result.there.sent = 8000;
  const std::string line = to_json(answer);
  for (const char* number : {"5.5e48", "1e400", "9223372036854775808", "-1e300", "8000.5", "\"8000\"", "null"}) {
    std::string changed = line;
    changed.replace(changed.find("8000"), 4, number);
    EXPECT_EQ(ms::test::thrown_by([&] { read_answer(changed); }).kind(), "net.wire") << number;
  }
  std::string order = to_json(TestOrder{.spec = {.max_gbps = 77}});
  order.replace(order.find("77"), 2, "5.5e48");
  EXPECT_EQ(ms::test::thrown_by([&] { read_order(order); }).kind(), "net.wire");
  EXPECT_EQ(ms::test::thrown_by([] { read_member(std::string(100'000, '[')); }).kind(), "net.wire");
  EXPECT_EQ(ms::test::thrown_by([] { read_facts(std::string(100'000, '[')); }).kind(), "net.wire");
}

}  // namespace
}  // namespace ms::net
