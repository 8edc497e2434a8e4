// One end of an exchange of UDP datagrams between two agents: counts what is lost on the way, and finds out how large
// packets may be. Both ends have told each other, over an authenticated channel, their ports and a number that all
// datagrams of the exchange begin with: others are ignored.
#pragma once

#include <cstdint>
#include <optional>

#include "link/channel.h"

namespace ms::net {

struct DatagramCounts {
  std::int64_t sent = 0, received = 0;  // received: each once
  std::int64_t dropped = 0;             // by this end: its socket was full
};

class Datagrams {
 public:
  // On a port of the kernel's choice at this address.
  explicit Datagrams(const link::Address& here);
  int port() const { return link::local_address(fd_.get()).port(); }
  void meet(const link::Address& there, std::uint64_t exchange);

  // Sends `count` small ones evenly over `seconds`, tells the other end through the channel when they are sent, and
  // takes in what that one sends until it has said so, too, and `linger_s` more. Both ends call it; sequence numbers
  // begin with 0. What this node had no room to send does not count as sent.
  DatagramCounts exchange(int count, double seconds, double linger_s, link::Channel& channel);
  // Does a packet of `mtu` bytes arrive? Sends it several times, each time with a small one, and calls it lost only
  // where small ones were answered. Absent: too few of those were, so that it cannot tell. The other end must be in
  // answer_sizes().
  std::optional<bool> passes(int mtu);
  // Answers the other end's passes() until a line on the channel says stop, or the deadline has passed.
  void answer_sizes(link::Channel& until_line, link::Deadline deadline);

 private:
  UniqueFd fd_;
  link::Address there_;
  std::uint64_t exchange_ = 0;
};

}  // namespace ms::net
