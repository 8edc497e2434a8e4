// perf.nic: one TCP connection from the node to itself for each network interface's own address.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/handle.h"
#include "base/sysroot.h"
#include "base/text.h"
#include "diag/rates.h"
#include "health/checks/check.h"

namespace ms::diag {
namespace {

// The network interfaces of this node and what a TCP connection to their addresses carries.

struct NicAddress {
  std::string interface;
  sockaddr_storage address{};  // port 0
  socklen_t length = 0;
};

using Clock = std::chrono::steady_clock;

constexpr int kPatience_ms = 3000;  // of every wait for the other end
constexpr int kMostOthers = 4096;   // connections of others, before ours
constexpr std::size_t kMostInterfaces = 16;
constexpr std::size_t kBlock = 256 << 10;

Error network_error(std::string_view what) {
  return Error("diag.nic", Blame::node, fmt::format("{}: {}", what, errno_text(errno)));
}

sockaddr* plain(sockaddr_storage& address) { return reinterpret_cast<sockaddr*>(&address); }

bool same_end(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET) {
    const auto &x = reinterpret_cast<const sockaddr_in&>(a), &y = reinterpret_cast<const sockaddr_in&>(b);
    return x.sin_port == y.sin_port && x.sin_addr.s_addr == y.sin_addr.s_addr;
  }
  const auto &x = reinterpret_cast<const sockaddr_in6&>(a), &y = reinterpret_cast<const sockaddr_in6&>(b);
  return x.sin6_port == y.sin6_port && std::memcmp(&x.sin6_addr, &y.sin6_addr, sizeof x.sin6_addr) == 0;
}

void set_patience(int socket) {
  const timeval patience{kPatience_ms / 1000, (kPatience_ms % 1000) * 1000};
  for (const int option : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    if (::setsockopt(socket, SOL_SOCKET, option, &patience, sizeof patience) != 0) throw network_error("setsockopt");
  }
}

struct Connection {
  UniqueFd from, to;
};

Connection connect_to_self(const NicAddress& nic) {
  sockaddr_storage address = nic.address;  // port 0: any
  socklen_t length = nic.length;
  const UniqueFd listener(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Connection connection;
  connection.from = UniqueFd(::socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener || !connection.from) throw network_error("socket");
  if (::bind(listener.get(), plain(address), length) != 0) throw network_error("bind");
  if (::listen(listener.get(), SOMAXCONN) != 0) throw network_error("listen");
  if (::getsockname(listener.get(), plain(address), &length) != 0) throw network_error("getsockname");
  set_patience(connection.from.get());
  if (::connect(connection.from.get(), plain(address), length) != 0) {
    if (errno == EINPROGRESS) errno = ETIMEDOUT;  // what a connect that ran into its patience says
    throw network_error("connect");
  }
  sockaddr_storage own{};
  socklen_t own_length = sizeof own;
  if (::getsockname(connection.from.get(), plain(own), &own_length) != 0) throw network_error("getsockname");
  for (int others = 0; others < kMostOthers; ++others) {
    pollfd polled{listener.get(), POLLIN, 0};
    if (::poll(&polled, 1, kPatience_ms) <= 0) break;
    sockaddr_storage peer{};
    socklen_t peer_length = sizeof peer;
    connection.to = UniqueFd(::accept4(listener.get(), plain(peer), &peer_length, SOCK_CLOEXEC));
    if (connection.to && same_end(peer, own)) {
      set_patience(connection.to.get());
      return connection;
    }
  }
  errno = ETIMEDOUT;
  throw network_error("accept");
}

std::uint64_t send_for(int socket, double seconds) {
  const std::vector<char> block(kBlock, 'x');
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::uint64_t total = 0;
  while (Clock::now() < end) {
    const ssize_t sent = ::send(socket, block.data(), block.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) throw network_error("send");
    total += static_cast<std::uint64_t>(sent);
  }
  ::shutdown(socket, SHUT_WR);
  return total;
}

std::uint64_t receive_all(int socket) {
  std::vector<char> block(kBlock);
  std::uint64_t total = 0;
  while (true) {
    const ssize_t got = ::recv(socket, block.data(), block.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw network_error("recv");
    if (got == 0) return total;
    total += static_cast<std::uint64_t>(got);
  }
}

// One address of each interface that is up and running and not the loopback, IPv4 before IPv6.
std::vector<NicAddress> nic_addresses(const Sysroot& root) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw network_error("getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<NicAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const unsigned wanted = IFF_UP | IFF_RUNNING;
    if ((entry->ifa_flags & wanted) != wanted || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    NicAddress nic{.interface = entry->ifa_name,
                   .length = static_cast<socklen_t>(family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6))};
    std::memcpy(&nic.address, entry->ifa_addr, nic.length);
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(nic.address).sin6_addr)) {
      continue;
    }
    if (root.exists("/sys/class/net/" + nic.interface + "/bridge")) continue;  // of containers: no NIC
    const auto same = std::find_if(found.begin(), found.end(),
                                   [&](const NicAddress& other) { return other.interface == nic.interface; });
    if (same == found.end()) {
      found.push_back(nic);
    } else if (same->address.ss_family == AF_INET6 && family == AF_INET) {
      *same = nic;
    }
  }
  if (found.size() > kMostInterfaces) found.resize(kMostInterfaces);
  return found;
}

// Gbit/s of one connection to this address; throws Error("diag.nic", node) where there is none, or it stops.
double self_gbps(const NicAddress& nic, double seconds) {
  const Connection connection = connect_to_self(nic);
  const Clock::time_point start = Clock::now();
  std::future<std::uint64_t> sender =
      std::async(std::launch::async, [&] { return send_for(connection.from.get(), seconds); });
  const std::uint64_t received = receive_all(connection.to.get());
  const double elapsed_s = std::chrono::duration<double>(Clock::now() - start).count();
  const std::uint64_t sent = sender.get();
  if (sent != received) { throw Error("diag.nic", Blame::node, fmt::format("{} of {} bytes arrived", received, sent)); }
  return static_cast<double>(received) * 8 / elapsed_s / 1e9;
}

constexpr double kAll_s = 6, kEach_s = 1;  // of sending: all interfaces together, one of them at most

health::Result measure_nic(health::Evidence& evidence) {
  const Share share = this_share();
  if (share.index > 0) return health::skipped("another process of this node does it");
  const std::vector<NicAddress> nics = nic_addresses(evidence.root());
  if (nics.empty()) return health::skipped("no network interface has an address");
  const health::ActiveConfig& expect = evidence.policy().active;
  const double seconds = std::min(kEach_s, kAll_s / static_cast<double>(nics.size()));
  std::vector<Rate> rates;
  for (const NicAddress& nic : nics) {
    rates.push_back({nic.interface, self_gbps(nic, seconds), expect.nic_gbps, "Gbit/s"});
  }
  return judge_rates(rates, expect.min_fraction, share, Scope::whole, "the node's own TCP stack, not the wire");
}

}  // namespace

extern constinit const health::Check kPerfNic = {
    .code = "perf.nic",
    .level = 2,
    .lane = health::Lane::active,
    .summary = "local TCP through the address of a network interface slower than expected",
    .needs = "a network interface with an address",
    .deadline_s = 15,
    .cost = health::Cost::seconds,
    .takes = health::kNode,
    .on_hang = std::nullopt,
    .explain =
        "Opens one TCP connection from the node to itself for each interface that is up and has an address, for at "
        "most a second each.\n\n"
        "Linux does not send local traffic through the interface, so this measures the TCP stack, the firewall rules "
        "and the memory of the node, not the wire. It finds a node with a busy kernel, or with rules that drop its own "
        "traffic. perf.reduce measures the wire between nodes. The limit is active.nic_gbps.",
    .remedy = "Compare firewall rules, kernel settings and load with a node that is not slow.",
    .run = measure_nic};

}  // namespace ms::diag
