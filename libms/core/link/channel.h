// A TCP connection that speaks lines and bytes, every wait with a deadline, and that has proved who it is: both ends of
// a connection know the secret of this check, and show each other so before anything else is said. Used between the
// coordinator and its agents, and between agents.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/handle.h"

namespace ms::link {

using Deadline = std::chrono::steady_clock::time_point;
inline Deadline in_seconds(double seconds) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}
double seconds_until(Deadline deadline);  // 0 where it has passed
inline constexpr double kAnswer_s = 3;    // for an answer that takes no time

// An IPv4 or IPv6 address with a port: "10.0.0.1:4000", "[fe80::1]:4000". Numbers only: no name is looked up.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int port() const;
  Address with_port(int port) const;
  std::string str() const;
  std::string host() const;  // without the port
};
std::optional<Address> parse_address(std::string_view text);
Address local_address(int fd);
Address peer_address(int fd);

struct ConnectOptions {
  int source_port = 0;          // 0: any
  std::optional<Address> from;  // the address to connect from; its port does not count
};

// All waits throw Error("net.peer", fabric): refused, closed, not in time, each with who was at the other end.
class Channel {
 public:
  Channel() = default;
  // An established connection; `peer` names the other end in errors.
  Channel(UniqueFd fd, std::string peer);
  static Channel connect(const Address& to, const std::string& peer, Deadline deadline,
                         const ConnectOptions& options = {});

  explicit operator bool() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }
  const std::string& peer() const { return peer_; }
  void set_peer(std::string peer) { peer_ = std::move(peer); }

  // From now on both ends add a MAC to each line that they send and refuse a line without the right one: what another
  // sends in their name, what was sent before, and what was sent to the other end of a connection. Both know the key.
  enum class End { connected, accepted };
  void protect(std::string key, End end);
  // The line as it is sent, with its newline. Each must be sent, in this order.
  std::string framed(std::string_view line);
  void send_line(std::string_view line, Deadline deadline);  // without its newline
  std::string receive_line(Deadline deadline, std::size_t max_bytes = std::size_t{64} << 10);
  // Returns a line if a whole one has arrived, without waiting.
  std::optional<std::string> poll_line(std::size_t max_bytes = std::size_t{1} << 20);
  void send(std::span<const std::byte> bytes, Deadline deadline);
  void receive(std::span<std::byte> bytes, Deadline deadline);
  // Receives at least one byte and at most all. Returns the number; 0 if the other end has closed.
  std::size_t receive_some(std::span<std::byte> bytes, Deadline deadline);
  // Sends as much as fits into the socket's buffer now. Returns the bytes sent, maybe 0.
  std::size_t send_some(std::span<const std::byte> bytes);
  // Waits until one may send (or a line may be read).
  void wait_writable(Deadline deadline) const;
  // Drops what is not yet sent.
  void close_now();

 private:
  void wait(short events, Deadline deadline, std::string_view what) const;
  bool fill(std::size_t max_bytes);  // reads what there is; false: the other end has closed
  struct Protection {
    std::string key;
    End end;
    std::uint64_t sent = 0, received = 0;  // lines
  };
  static std::string mac(const Protection& protection, End from, std::uint64_t number, std::string_view line);

  UniqueFd fd_;
  std::string peer_;
  std::string buffer_;  // received, not yet handed out
  std::optional<Protection> protection_;
};

// While this lives, receive() blocks in the kernel and not in poll(): two system calls less for every small message.
class PromptReceive {
 public:
  explicit PromptReceive(Channel& channel);
  ~PromptReceive();
  PromptReceive(const PromptReceive&) = delete;
  PromptReceive& operator=(const PromptReceive&) = delete;

 private:
  int fd_;
};

// Listens on the address's port; 0: one of the kernel's choice.
class Listener {
 public:
  explicit Listener(const Address& on);
  int port() const { return local_address(fd_.get()).port(); }
  int fd() const { return fd_.get(); }
  // nullopt where nobody is there now; errno says why.
  std::optional<Channel> accept_now();

 private:
  UniqueFd fd_;
};

}  // namespace ms::link
