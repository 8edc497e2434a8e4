// Retransmissions of this node's TCP connections, by peer: what the kernel knows of packets that are lost, without a
// test of its own. Linux: sock_diag(7), for which no root is needed.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ms::net {

// Segments of one connection since it began, as struct tcp_info counts them.
struct TcpCounts {
  std::string peer;  // the other end's address, without the port
  std::int64_t sent = 0, again = 0;
};
using TcpSockets = std::map<std::uint64_t, TcpCounts>;  // by the kernel's number of the connection

// Returns the established connections that leave this node; empty where the kernel does not say.
TcpSockets tcp_sockets();

// Segments to a peer: sent, those sent again among them, and in how many looks some were sent again.
struct PeerLoss {
  std::string peer;
  std::int64_t sent = 0, again = 0;
  int looks = 0;

  friend bool operator==(const PeerLoss&, const PeerLoss&) = default;
};

// Sums up what was sent, by peer, between the looks that are remembered. Pure: sockets and time are passed in.
class TcpLosses {
 public:
  static constexpr double kEvery_s = 1;          // between two looks
  static constexpr std::size_t kRemembered = 8;  // looks

  bool due(double now_s) const { return now_s - last_s_ >= kEvery_s; }
  void look(TcpSockets sockets, double now_s);
  std::vector<PeerLoss> peers() const;

 private:
  double last_s_ = -1e9;
  TcpSockets before_;
  bool first_ = true;
  std::deque<std::map<std::string, std::pair<std::int64_t, std::int64_t>>> looks_;  // sent and again, by peer
};

}  // namespace ms::net
