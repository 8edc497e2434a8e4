#include "link/channel.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/number.h"
#include "link/secret.h"

namespace ms::link {
namespace {

Error peer_error(const std::string& peer, std::string_view what) {
  return Error("net.peer", Blame::fabric, fmt::format("{}: {}", peer, what));
}

constexpr std::size_t kMac_bytes = 64;

bool would_block(int err) { return err == EAGAIN || err == EWOULDBLOCK || err == EINTR; }

// Small messages go at once, and what is sent never raises a signal.
UniqueFd made_ready(UniqueFd fd) {
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // An end that is gone without a word is found out within a minute.
  const int idle_s = 30, every_s = 10, times = 3;
  setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(fd.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd.get(), IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
  setsockopt(fd.get(), IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
  fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  return fd;
}

}  // namespace

double seconds_until(Deadline deadline) {
  return std::max(0.0, std::chrono::duration<double>(deadline - std::chrono::steady_clock::now()).count());
}

int Address::port() const {
  return ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

Address Address::with_port(int port) const {
  Address other = *this;
  auto& field = storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(other.storage).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(other.storage).sin_port;
  field = htons(static_cast<std::uint16_t>(port));
  return other;
}

std::string Address::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  const void* address = storage.ss_family == AF_INET6
                            ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr)
                            : &reinterpret_cast<const sockaddr_in&>(storage).sin_addr;
  inet_ntop(storage.ss_family, address, text, sizeof text);
  return text;
}

std::string Address::str() const {
  return storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", host(), port()) : fmt::format("{}:{}", host(), port());
}

std::optional<Address> parse_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  std::string host(text.substr(0, colon));
  const std::string_view number = text.substr(colon + 1);
  const int port = whole_number<int>(number).value_or(-1);
  if (port < 0 || port > 65535) return std::nullopt;
  Address address;
  if (host.starts_with('[') && host.ends_with(']')) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    v6.sin6_family = AF_INET6;
    address.length = sizeof v6;
    if (inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6.sin6_addr) != 1) return std::nullopt;
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
    v4.sin_family = AF_INET;
    address.length = sizeof v4;
    if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) != 1) return std::nullopt;
  }
  return address.with_port(port);
}

Address local_address(int fd) {
  Address address;
  address.length = sizeof address.storage;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

Address peer_address(int fd) {
  Address address;
  address.length = sizeof address.storage;
  getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length);
  return address;
}

Channel::Channel(UniqueFd fd, std::string peer) : fd_(made_ready(std::move(fd))), peer_(std::move(peer)) {}

Channel Channel::connect(const Address& to, const std::string& peer, Deadline deadline, const ConnectOptions& options) {
  UniqueFd fd(socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw Error("net.socket", Blame::node, fmt::format("no socket: {}", errno_text(errno)));
  if (options.from || options.source_port != 0) {
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    Address from = options.from.value_or(Address{});
    if (!options.from) {
      from.storage.ss_family = to.storage.ss_family;
      from.length = to.length;
    }
    from = from.with_port(options.source_port);
    if (bind(fd.get(), from.get(), from.length) != 0) {
      throw Error("net.socket", Blame::node, fmt::format("cannot send from {}: {}", from.str(), errno_text(errno)));
    }
  }
  Channel channel(std::move(fd), peer);
  if (::connect(channel.fd(), to.get(), to.length) != 0) {
    if (errno != EINPROGRESS) throw peer_error(peer, fmt::format("{}: {}", to.str(), errno_text(errno)));
    channel.wait(POLLOUT, deadline, "no connection");
    int err = 0;
    socklen_t length = sizeof err;
    getsockopt(channel.fd(), SOL_SOCKET, SO_ERROR, &err, &length);
    if (err != 0) throw peer_error(peer, fmt::format("{}: {}", to.str(), errno_text(err)));
  }
  return channel;
}

void Channel::wait(short events, Deadline deadline, std::string_view what) const {
  while (true) {
    pollfd poll{.fd = fd_.get(), .events = events, .revents = 0};
    const double seconds = seconds_until(deadline);
    const int ready = ::poll(&poll, 1, static_cast<int>(std::ceil(std::min(seconds, 3600.0) * 1e3)));
    if (ready > 0) return;
    if (ready < 0 && errno != EINTR) throw peer_error(peer_, errno_text(errno));
    if (ready == 0 && seconds_until(deadline) == 0) throw peer_error(peer_, fmt::format("{} in time", what));
  }
}

void Channel::wait_writable(Deadline deadline) const { wait(POLLOUT | POLLIN, deadline, "nothing could be sent"); }

std::size_t Channel::send_some(std::span<const std::byte> bytes) {
  const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  if (sent >= 0) return static_cast<std::size_t>(sent);
  if (would_block(errno)) return 0;
  throw peer_error(peer_, errno_text(errno));
}

void Channel::send(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const std::size_t sent = send_some(bytes);
    bytes = bytes.subspan(sent);
    if (sent == 0) wait(POLLOUT, deadline, "nothing could be sent");
  }
}

std::size_t Channel::receive_some(std::span<std::byte> bytes, Deadline deadline) {
  if (!buffer_.empty()) {
    const std::size_t count = std::min(bytes.size(), buffer_.size());
    std::memcpy(bytes.data(), buffer_.data(), count);
    buffer_.erase(0, count);
    return count;
  }
  while (true) {
    const ssize_t got = recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (!would_block(errno)) throw peer_error(peer_, errno_text(errno));
    wait(POLLIN, deadline, "no answer");
  }
}

void Channel::receive(std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const std::size_t got = receive_some(bytes, deadline);
    if (got == 0) throw peer_error(peer_, "closed the connection");
    bytes = bytes.subspan(got);
  }
}

std::string Channel::mac(const Protection& protection, End from, std::uint64_t number, std::string_view line) {
  return mac_of(protection.key, fmt::format("{} {} {}", from == End::connected ? 'c' : 'a', number, line));
}

void Channel::protect(std::string key, End end) { protection_.emplace(Protection{std::move(key), end}); }

std::string Channel::framed(std::string_view line) {
  const std::string proof =
      protection_ ? mac(*protection_, protection_->end, protection_->sent++, line) : std::string();
  return fmt::format("{}{}\n", proof, line);
}

void Channel::send_line(std::string_view line, Deadline deadline) {
  const std::string text = framed(line);
  send(std::as_bytes(std::span(text)), deadline);
}

bool Channel::fill(std::size_t max_bytes) {
  char chunk[16384];
  while (buffer_.size() < max_bytes) {
    const ssize_t got = recv(fd_.get(), chunk, sizeof chunk, 0);
    if (got == 0) return false;
    if (got < 0) {
      if (would_block(errno)) return true;
      throw peer_error(peer_, errno_text(errno));
    }
    buffer_.append(chunk, static_cast<std::size_t>(got));
  }
  return true;
}

std::optional<std::string> Channel::poll_line(std::size_t max_bytes) {
  std::size_t end = buffer_.find('\n');
  if (end == std::string::npos) {
    const bool open = fill(max_bytes);
    end = buffer_.find('\n');
    if (end == std::string::npos) {
      if (!open) throw peer_error(peer_, "closed the connection");
      if (buffer_.size() >= max_bytes) throw peer_error(peer_, "sent a line that is too long");
      return std::nullopt;
    }
  }
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, end + 1);
  if (!protection_) return line;
  const End theirs = protection_->end == End::connected ? End::accepted : End::connected;
  const std::string_view text = std::string_view(line).substr(std::min(line.size(), kMac_bytes));
  if (!is_same_mac(line.substr(0, kMac_bytes), mac(*protection_, theirs, protection_->received++, text)))
    throw peer_error(peer_, "sent a line that is not from the process that proved itself");
  return std::string(text);
}

std::string Channel::receive_line(Deadline deadline, std::size_t max_bytes) {
  while (true) {
    if (std::optional<std::string> line = poll_line(max_bytes)) return *std::move(line);
    wait(POLLIN, deadline, "no answer");
  }
}

void Channel::close_now() {
  if (!fd_) return;
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  fd_.reset();
}

PromptReceive::PromptReceive(Channel& channel) : fd_(channel.fd()) {
  const timeval then_poll{.tv_sec = 1, .tv_usec = 0};  // so that deadlines are kept
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &then_poll, sizeof then_poll);
  fcntl(fd_, F_SETFL, 0);
}
PromptReceive::~PromptReceive() { fcntl(fd_, F_SETFL, O_NONBLOCK); }

Listener::Listener(const Address& on)
    : fd_(socket(on.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  constexpr int kBacklog = 4096;  // all nodes of a job may come at once
  // Somebody may listen here again, although the connections of this one are not forgotten yet: both must allow it.
  const int allowed = 1;
  setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &allowed, sizeof allowed);
  if (!fd_ || bind(fd_.get(), on.get(), on.length) != 0 || listen(fd_.get(), kBacklog) != 0) {
    const bool in_use = errno == EADDRINUSE;
    throw Error("net.socket", Blame::node, fmt::format("cannot listen on {}: {}", on.str(), errno_text(errno)),
                in_use ? "another process listens there, 'ss -ltnp' names it: choose another port" : "");
  }
}

std::optional<Channel> Listener::accept_now() {
  Address from;
  from.length = sizeof from.storage;
  UniqueFd fd(
      accept4(fd_.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return std::nullopt;
  return Channel(std::move(fd), from.str());
}

}  // namespace ms::link
