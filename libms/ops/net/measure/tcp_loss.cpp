#include "net/measure/tcp_loss.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/handle.h"

namespace ms::net {
namespace {

constexpr unsigned kEstablished = 1;  // TCP_ESTABLISHED, which <netinet/tcp.h> defines, not beside <linux/tcp.h>
constexpr int kDump_s = 1;

bool is_loopback(int family, const __be32* words) {
  if (family == AF_INET) return (ntohl(words[0]) >> 24) == 127;
  const bool mapped = words[0] == 0 && words[1] == 0 && words[2] == htonl(0xffff);
  if (mapped) return (ntohl(words[3]) >> 24) == 127;
  return words[0] == 0 && words[1] == 0 && words[2] == 0 && words[3] == htonl(1);
}

std::string address_text(int family, const __be32* words) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(family, words, text.data(), text.size());
  const std::string address = text.data();
  constexpr std::string_view kMapped = "::ffff:";  // an IPv4 peer of an IPv6 socket
  return address.starts_with(kMapped) && address.find('.') != address.npos ? address.substr(kMapped.size()) : address;
}

void add(const nlmsghdr* header, TcpSockets& sockets) {
  if (header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) return;
  inet_diag_msg message{};
  std::memcpy(&message, NLMSG_DATA(header), sizeof message);
  const int family = message.idiag_family;
  if (is_loopback(family, message.id.idiag_dst)) return;
  const char* at = static_cast<const char*>(NLMSG_DATA(header)) + NLMSG_ALIGN(sizeof message);
  const char* end = reinterpret_cast<const char*>(header) + header->nlmsg_len;
  while (end - at >= static_cast<std::ptrdiff_t>(sizeof(rtattr))) {
    rtattr attribute{};
    std::memcpy(&attribute, at, sizeof attribute);
    if (attribute.rta_len < sizeof attribute || attribute.rta_len > end - at) return;
    if (attribute.rta_type == INET_DIAG_INFO) {
      tcp_info info{};  // an older kernel says less, and the rest stays 0
      std::memcpy(&info, at + RTA_LENGTH(0), std::min<std::size_t>(sizeof info, attribute.rta_len - RTA_LENGTH(0)));
      const std::uint64_t cookie = std::uint64_t{message.id.idiag_cookie[1]} << 32 | message.id.idiag_cookie[0];
      sockets[cookie] = {.peer = address_text(family, message.id.idiag_dst),
                         .sent = info.tcpi_data_segs_out,
                         .again = info.tcpi_total_retrans};
    }
    at += RTA_ALIGN(attribute.rta_len);
  }
}

void dump(int fd, std::uint8_t family, TcpSockets& sockets) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 body;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.body.sdiag_family = family;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = 1U << kEstablished;
  request.body.idiag_ext = 1U << (INET_DIAG_INFO - 1);
  if (send(fd, &request, sizeof request, 0) < 0) return;
  alignas(nlmsghdr) std::array<char, 32768> buffer;
  while (true) {
    const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
    if (got <= 0) return;
    auto left = static_cast<unsigned>(got);
    for (const auto* header = reinterpret_cast<const nlmsghdr*>(buffer.data()); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE || header->nlmsg_type == NLMSG_ERROR) return;
      add(header, sockets);
    }
  }
}

}  // namespace

TcpSockets tcp_sockets() {
  TcpSockets sockets;
  const UniqueFd fd(socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!fd) return sockets;
  const timeval patience{.tv_sec = kDump_s, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  for (const std::uint8_t family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}}) dump(fd.get(), family, sockets);
  return sockets;
}

void TcpLosses::look(TcpSockets sockets, double now_s) {
  last_s_ = now_s;
  auto& look = looks_.emplace_back();
  for (const auto& [number, now] : sockets) {
    // A connection that was not there before is new; all of the first look are of unknown age.
    const auto before = before_.find(number);
    if (before == before_.end() && first_) continue;
    auto& [sent, again] = look[now.peer];
    sent += now.sent - (before == before_.end() ? 0 : before->second.sent);
    again += now.again - (before == before_.end() ? 0 : before->second.again);
  }
  first_ = false;
  before_ = std::move(sockets);
  if (looks_.size() > kRemembered) looks_.pop_front();
}

std::vector<PeerLoss> TcpLosses::peers() const {
  std::map<std::string, PeerLoss> found;
  for (const auto& look : looks_) {
    for (const auto& [peer, counts] : look) {
      PeerLoss& loss = found[peer];
      loss.peer = peer;
      loss.sent += counts.first;
      loss.again += counts.second;
      if (counts.second > 0) ++loss.looks;
    }
  }
  std::vector<PeerLoss> peers;
  for (auto& [peer, loss] : found) {
    if (loss.sent > 0) peers.push_back(std::move(loss));
  }
  return peers;
}

}  // namespace ms::net
