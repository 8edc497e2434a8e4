// Where a page is served for its user alone: a socket that nobody else may use, or a port of the loopback interface,
// which every user of the machine reaches, so that only a token in the URL lets them in.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/handle.h"
#include "link/http_server.h"

namespace ms::tracepp {

class Endpoint {
 public:
  // A socket at `path`, in a directory that is the user's and that nobody else may write, which is made where it is not
  // there; empty: in a new directory in TMPDIR. A socket that nobody listens at any more is replaced. Throws
  // Error("follow.socket", user).
  static Endpoint at_socket(const std::string& path);
  // `where`: "127.0.0.1:PORT" or PORT; port 0: a free one. Throws Error("follow.listen", user), for any other
  // interface, too.
  static Endpoint at_loopback(std::string_view where);

  Endpoint(Endpoint&& other) noexcept
      : fd_(std::move(other.fd_)),
        port_(other.port_),
        path_(std::exchange(other.path_, {})),
        made_directory_(std::exchange(other.made_directory_, {})) {}
  Endpoint& operator=(Endpoint&&) = delete;
  ~Endpoint();  // removes the socket, and the directory that it made

  int fd() const { return fd_.get(); }
  // How ssh reaches it: the value of -L, for a port of one's own machine.
  std::string forwarding(int own_port) const;
  int port() const { return port_; }  // 0: a socket

 private:
  Endpoint() = default;
  UniqueFd fd_;
  int port_ = 0;
  std::string path_, made_directory_;
};

// 128 random bits in hexadecimal digits. Throws Error("follow.token", node).
std::string new_token();

// Answers the requests of a page. Those who do not know the token are refused, and so are pages of other sites whose
// names were made to mean this machine: the host must be called localhost, 127.0.0.1 or [::1].
class Site {
 public:
  using Text = std::function<std::string()>;
  using Page = std::function<std::shared_ptr<const std::string>()>;
  Site(std::string token, Page page, Text state)
      : token_(std::move(token)), page_(std::move(page)), state_(std::move(state)) {}
  link::HttpAnswer answer(const link::HttpRequest& request);

 private:
  std::string token_;
  Page page_;
  Text state_;
  bool has_warned_ = false;
};

}  // namespace ms::tracepp
