#include "net/measure/tcp_loss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "link/channel.h"
#include "net/measure/interface.h"

namespace ms::net {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(TcpLosses, CountFromTheSecondLookOn) {
  TcpLosses losses;
  EXPECT_TRUE(losses.due(0));
  losses.look({{1, {.peer = "a", .sent = 1000, .again = 500}}, {2, {.peer = "b", .sent = 7, .again = 0}}}, 0);
  EXPECT_THAT(losses.peers(), IsEmpty()) << "how old the counts are is not known";
  EXPECT_FALSE(losses.due(0.5));
  // Two connections to one peer; one of them is new.
  losses.look({{1, {.peer = "a", .sent = 1010, .again = 502}}, {3, {.peer = "a", .sent = 5, .again = 1}}}, 1);
  losses.look({{1, {.peer = "a", .sent = 1020, .again = 502}}, {3, {.peer = "a", .sent = 5, .again = 1}}}, 2);
  EXPECT_THAT(losses.peers(), ElementsAre(PeerLoss{.peer = "a", .sent = 25, .again = 3, .looks = 1}));
}

TEST(TcpLosses, ForgetWhatIsLongAgo) {
  TcpLosses losses;
  losses.look({{1, {.peer = "a", .sent = 0, .again = 0}}}, 0);
  losses.look({{1, {.peer = "a", .sent = 10, .again = 10}}}, 1);
  for (std::size_t i = 0; i < TcpLosses::kRemembered; ++i)
    losses.look({{1, {.peer = "a", .sent = 10, .again = 10}}}, 2);
  EXPECT_THAT(losses.peers(), IsEmpty());
}

TEST(TcpSockets, AreThoseOfTheKernelWithoutLoopback) {
  const Interface own = interfaces().front();
  if (own.address.host() == "127.0.0.1") GTEST_SKIP() << "there is no other interface";
  link::Listener listener(own.address.with_port(0));
  link::Channel here = link::Channel::connect(own.address.with_port(listener.port()), "test", link::in_seconds(3));
  here.send_line("some segment", link::in_seconds(3));
  std::int64_t sent = 0;
  for (const auto& [number, counts] : tcp_sockets()) {
    if (counts.peer == own.address.host()) sent += counts.sent;
    EXPECT_NE(counts.peer, "127.0.0.1");
  }
  EXPECT_GE(sent, 1);
}

}  // namespace
}  // namespace ms::net
