// Which sizes of packets pass, against a peer on the loopback that leaves some of them unanswered.
#include "net/measure/datagrams.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <functional>
#include <thread>

namespace ms::net {
namespace {

constexpr int kMtu = 1500;

// Answers packets as answer_sizes() does, but only those for which `answers`, by their bytes, is true.
std::optional<bool> passes_if(const std::function<bool(ssize_t)>& answers) {
  const link::Address any = *link::parse_address("127.0.0.1:0");
  const UniqueFd peer(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const timeval patience{.tv_sec = 0, .tv_usec = 20'000};
  setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  EXPECT_EQ(bind(peer.get(), any.get(), any.length), 0);
  const std::jthread thread([&](const std::stop_token& stop) {
    std::array<std::uint32_t, 512> data{};
    while (!stop.stop_requested()) {
      link::Address from = any;
      const ssize_t got =
          recvfrom(peer.get(), data.data(), sizeof data, 0, reinterpret_cast<sockaddr*>(&from.storage), &from.length);
      if (got < 16 || !answers(got)) continue;
      data[2] = 2;  // the kind of an answer; the exchange and the number stay
      sendto(peer.get(), data.data(), 16, 0, from.get(), from.length);
    }
  });
  Datagrams datagrams(any);
  datagrams.meet(link::local_address(peer.get()), 7);
  return datagrams.passes(kMtu);
}

TEST(Datagrams, PassIfOneOfThatSizeIsAnswered) {
  int large = 0;
  EXPECT_EQ(passes_if([&](ssize_t bytes) { return bytes > 1000 && ++large == 3; }), true);
}

TEST(Datagrams, DoNotPassIfOnlySmallOnesAreAnswered) {
  EXPECT_EQ(passes_if([](ssize_t bytes) { return bytes < 1000; }), false);
}

TEST(Datagrams, OfAPeerThatDoesNotAnswerNothingIsKnown) {
  EXPECT_EQ(passes_if([](ssize_t) { return false; }), std::nullopt);
  int answered = 0;
  EXPECT_EQ(passes_if([&](ssize_t) { return ++answered <= 2; }), true) << "the first large one was answered";
  int small = 0;
  EXPECT_EQ(passes_if([&](ssize_t bytes) { return bytes < 1000 && ++small <= 2; }), std::nullopt);
}

}  // namespace
}  // namespace ms::net
