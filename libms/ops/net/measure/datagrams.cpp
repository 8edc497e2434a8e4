#include "net/measure/datagrams.h"

#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace ms::net {
namespace {

struct Head {
  std::uint64_t exchange;
  std::uint32_t kind;
  std::uint32_t number;
};
enum Kind : std::uint32_t { kCounted, kSize, kSizeArrived };

constexpr std::size_t kSmall = 64;          // bytes of a counted datagram
constexpr std::size_t kMaxPayload = 65507;  // that a UDP datagram can hold

int headers_of(const link::Address& address) { return address.storage.ss_family == AF_INET6 ? 48 : 28; }

}  // namespace

Datagrams::Datagrams(const link::Address& here)
    : fd_(socket(here.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  const link::Address any_port = here.with_port(0);
  if (!fd_ || bind(fd_.get(), any_port.get(), any_port.length) != 0) {
    throw Error("net.socket", Blame::node, fmt::format("no datagrams from {}: {}", here.host(), errno_text(errno)));
  }
  const int on = 1, room = 4 << 20;
  setsockopt(fd_.get(), SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on);
  if (setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0)
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  // Never in pieces, and whatever the kernel believes of the path.
  const int probe = here.storage.ss_family == AF_INET6 ? IPV6_PMTUDISC_PROBE : IP_PMTUDISC_PROBE;
  if (here.storage.ss_family == AF_INET6) {
    setsockopt(fd_.get(), IPPROTO_IPV6, IPV6_MTU_DISCOVER, &probe, sizeof probe);
  } else {
    setsockopt(fd_.get(), IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof probe);
  }
}

void Datagrams::meet(const link::Address& there, std::uint64_t exchange) {
  there_ = there;
  exchange_ = exchange;
  if (connect(fd_.get(), there.get(), there.length) != 0) {
    throw Error("net.socket", Blame::node, fmt::format("no datagrams to {}: {}", there.str(), errno_text(errno)));
  }
}

DatagramCounts Datagrams::exchange(int count, double seconds, double linger_s, link::Channel& channel) {
  using Time = std::chrono::steady_clock;
  DatagramCounts counts;
  std::vector<bool> seen;
  std::uint32_t overflow = 0;
  const auto take_in = [&] {
    while (true) {
      std::array<char, kSmall> data;
      alignas(cmsghdr) std::array<char, 64> control;
      iovec piece{.iov_base = data.data(), .iov_len = data.size()};
      msghdr message{};
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      const ssize_t got = recvmsg(fd_.get(), &message, 0);
      if (got < 0) return;  // nothing is there, or an ICMP error of an end that has left already
      for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL)
          std::memcpy(&overflow, CMSG_DATA(c), sizeof overflow);
      Head head;
      if (got < static_cast<ssize_t>(sizeof head)) continue;
      std::memcpy(&head, data.data(), sizeof head);
      constexpr std::uint32_t kMost = 1U << 24;
      if (head.exchange != exchange_ || head.kind != kCounted || head.number >= kMost) continue;
      if (head.number >= seen.size()) seen.resize(head.number + 1);
      if (!seen[head.number]) ++counts.received;
      seen[head.number] = true;
    }
  };
  const auto wait = [&](double wait_s) {
    pollfd poll{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    const timespec time{
        .tv_sec = static_cast<time_t>(wait_s),
        .tv_nsec = static_cast<long>((wait_s - static_cast<double>(static_cast<time_t>(wait_s))) * 1e9)};
    ppoll(&poll, 1, &time, nullptr);
  };
  constexpr double kSlowest = 10;  // times the time that it should take
  constexpr int kBurst = 8;        // at most at once, however late we are
  const Time::time_point begin = Time::now();
  while (counts.sent < count) {
    take_in();
    const double elapsed = std::chrono::duration<double>(Time::now() - begin).count();
    const auto due = std::min<std::int64_t>(count, static_cast<std::int64_t>(elapsed / seconds * count) + 1);
    for (int i = 0; i < kBurst && counts.sent < due; ++i) {
      std::array<char, kSmall> data{};
      const Head head{.exchange = exchange_, .kind = kCounted, .number = static_cast<std::uint32_t>(counts.sent)};
      std::memcpy(data.data(), &head, sizeof head);
      // A full queue drains; the send is retried. A datagram that this node's own rules drop (EPERM) counts as sent.
      if (send(fd_.get(), data.data(), data.size(), MSG_NOSIGNAL) < 0 && errno != EPERM) break;
      ++counts.sent;
    }
    if (elapsed > kSlowest * seconds + 1) break;  // this node does not get round to it: fewer will do
    wait(counts.sent < due ? 1e-4 : std::min(1e-3, seconds / count));
  }
  channel.send_line("sent", link::in_seconds(link::kAnswer_s));
  const link::Deadline patience = link::in_seconds(kSlowest * seconds + link::kAnswer_s);
  bool all_sent = false;  // by the other end
  while (!all_sent && link::seconds_until(patience) > 0) {
    take_in();
    all_sent = channel.poll_line().has_value();
    if (!all_sent) wait(1e-3);
  }
  const link::Deadline end = link::in_seconds(linger_s);
  while (link::seconds_until(end) > 0) {
    wait(std::min(0.01, link::seconds_until(end)));
    take_in();
  }
  counts.dropped = overflow;
  return counts;
}

std::optional<bool> Datagrams::passes(int mtu) {
  constexpr int kEnough = 5, kTries = 20;  // answered small packets, of those sent
  enum Number : std::uint32_t { kLarge, kControl };
  const std::size_t payload = std::clamp<std::size_t>(static_cast<std::size_t>(std::max(0, mtu - headers_of(there_))),
                                                      sizeof(Head), kMaxPayload);
  std::vector<char> data(payload);
  const auto send_sized = [&](Number number, std::size_t bytes) {
    const Head head{.exchange = exchange_, .kind = kSize, .number = number};
    std::memcpy(data.data(), &head, sizeof head);
    return send(fd_.get(), data.data(), bytes, MSG_NOSIGNAL) >= 0 || errno != EMSGSIZE;
  };
  int answered = 0;
  for (int i = 0; i < kTries && answered < kEnough; ++i) {
    if (!send_sized(kLarge, payload)) return false;
    send_sized(kControl, sizeof(Head));
    const link::Deadline end = link::in_seconds(0.1);
    while (link::seconds_until(end) > 0) {
      pollfd poll{.fd = fd_.get(), .events = POLLIN, .revents = 0};
      ::poll(&poll, 1, static_cast<int>(link::seconds_until(end) * 1e3) + 1);
      Head answer;
      while (true) {
        const ssize_t got = recv(fd_.get(), &answer, sizeof answer, 0);
        if (got < 0) break;
        if (got != sizeof answer || answer.exchange != exchange_ || answer.kind != kSizeArrived) continue;
        if (answer.number == kLarge) return true;
        ++answered;
      }
    }
  }
  if (answered < kEnough) return std::nullopt;
  return false;
}

void Datagrams::answer_sizes(link::Channel& until_line, link::Deadline deadline) {
  while (link::seconds_until(deadline) > 0) {
    std::array<pollfd, 2> polls{
        {{.fd = fd_.get(), .events = POLLIN, .revents = 0}, {.fd = until_line.fd(), .events = POLLIN, .revents = 0}}};
    poll(polls.data(), polls.size(), static_cast<int>(link::seconds_until(deadline) * 1e3) + 1);
    Head head;
    while (true) {
      const ssize_t got = recv(fd_.get(), &head, sizeof head, 0);
      if (got < 0) break;
      if (got < static_cast<ssize_t>(sizeof head) || head.exchange != exchange_ || head.kind != kSize) continue;
      head.kind = kSizeArrived;
      send(fd_.get(), &head, sizeof head, MSG_NOSIGNAL);
    }
    if (polls[1].revents != 0) return;
  }
}

}  // namespace ms::net
