#include "tracepp/page/endpoint.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/safe_file.h"

namespace ms::tracepp {
namespace {

constexpr int kBacklog = 64;

Error socket_error(const std::string& path, std::string_view what) {
  return user_error("follow.socket", fmt::format("cannot serve at {}: {}", path, what),
                    "name another one with --socket, in a directory of your own");
}

UniqueFd new_socket(int family) { return UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

// Removes a socket that was left behind; throws where somebody listens at it.
void remove_left_behind(const std::string& path, const sockaddr_un& address) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode)) throw socket_error(path, "there is a file of this name, which is no socket");
  const UniqueFd fd = new_socket(AF_UNIX);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno != ECONNREFUSED)
    throw socket_error(path, "another program serves there");
  ::unlink(path.c_str());
}

std::string new_directory() {
  const char* const given = std::getenv("TMPDIR");
  std::string path = fmt::format("{}/ms-tracepp-XXXXXX", given != nullptr && *given != '\0' ? given : "/tmp");
  if (::mkdtemp(path.data()) == nullptr) throw socket_error(path, errno_text(errno));
  return path;
}

// Compares in a time that says nothing about where the texts differ.
bool is_same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differ = 0;
  for (std::size_t i = 0; i < a.size(); ++i) differ |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differ == 0;
}

bool is_this_machine(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  if (colon != std::string_view::npos && host.find_first_not_of("0123456789", colon + 1) == std::string_view::npos)
    host = host.substr(0, colon);
  return host == "localhost" || host == "127.0.0.1" || host == "[::1]";
}

}  // namespace

Endpoint Endpoint::at_socket(const std::string& path) {
  Endpoint endpoint;
  if (path.empty()) endpoint.made_directory_ = new_directory();
  const std::string whole = path.empty() ? endpoint.made_directory_ + "/page.sock"
                                         : std::filesystem::absolute(path).lexically_normal().string();
  if (!path.empty()) open_own_directory(parent_directory(whole), 0700, 022, {"follow.socket", ms::Blame::user});
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (whole.size() >= sizeof address.sun_path)
    throw socket_error(whole, fmt::format("a socket's name has at most {} bytes", sizeof address.sun_path - 1));
  std::memcpy(address.sun_path, whole.c_str(), whole.size() + 1);
  remove_left_behind(whole, address);
  endpoint.fd_ = new_socket(AF_UNIX);
  const mode_t before = ::umask(0177);  // it is the user's alone from its first moment
  const bool is_bound =
      endpoint.fd_ && ::bind(endpoint.fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  const int err = errno;
  ::umask(before);
  if (!is_bound) throw socket_error(whole, errno_text(err));
  endpoint.path_ = whole;
  if (::listen(endpoint.fd_.get(), kBacklog) != 0) throw socket_error(whole, errno_text(errno));
  return endpoint;
}

Endpoint Endpoint::at_loopback(std::string_view where) {
  constexpr std::string_view kLoopback = "127.0.0.1:";
  std::string_view number = where;
  if (number.starts_with(kLoopback)) number.remove_prefix(kLoopback.size());
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), port);
  if (error != std::errc() || end != number.data() + number.size()) {
    throw user_error("follow.listen", fmt::format("--listen '{}' is not 127.0.0.1:PORT", where),
                     "the page is served on this machine only; ssh -L brings it to another one");
  }
  Endpoint endpoint;
  endpoint.fd_ = new_socket(AF_INET);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const int allowed = 1;  // while connections of one before are not forgotten yet
  ::setsockopt(endpoint.fd_.get(), SOL_SOCKET, SO_REUSEADDR, &allowed, sizeof allowed);
  if (!endpoint.fd_ || ::bind(endpoint.fd_.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(endpoint.fd_.get(), kBacklog) != 0) {
    throw user_error("follow.listen", fmt::format("cannot serve at {}{}: {}", kLoopback, port, errno_text(errno)),
                     "--listen 0 takes a free port");
  }
  ::getsockname(endpoint.fd_.get(), reinterpret_cast<sockaddr*>(&address), &length);
  endpoint.port_ = ntohs(address.sin_port);
  return endpoint;
}

Endpoint::~Endpoint() {
  if (!path_.empty()) ::unlink(path_.c_str());
  if (!made_directory_.empty()) ::rmdir(made_directory_.c_str());
}

std::string Endpoint::forwarding(int own_port) const {
  return fmt::format("{}:{}", own_port, port_ == 0 ? path_ : fmt::format("127.0.0.1:{}", port_));
}

std::string new_token() {
  std::array<unsigned char, 16> bytes;
  if (::getentropy(bytes.data(), bytes.size()) != 0)
    throw Error("follow.token", ms::Blame::node, fmt::format("no random numbers: {}", errno_text(errno)));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

link::HttpAnswer Site::answer(const link::HttpRequest& request) {
  constexpr std::string_view kToken = "?token=";
  // Nothing of it is kept by a browser, shown within another page, or read by one.
  const auto guarded = [](link::HttpAnswer answer) {
    answer.headers =
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\n"
        "X-Frame-Options: DENY\r\nCross-Origin-Resource-Policy: same-origin\r\n";
    return answer;
  };
  const std::string_view target = request.target;
  const std::string_view path = target.substr(0, target.find('?'));
  if (!is_this_machine(request.host))
    return guarded(
        link::text_answer("403 Forbidden", "open the page as http://127.0.0.1:PORT or http://localhost:PORT\n"));
  if (path != "/" && path != "/state") return guarded(link::text_answer("404 Not Found", "no such page\n"));
  const std::string_view query = target.substr(path.size());
  if (!query.starts_with(kToken) || !is_same_secret(query.substr(kToken.size()), token_)) {
    if (!std::exchange(has_warned_, true))
      log::warn("tracepp", "refused a request without the token of the URL; further ones are not logged");
    return guarded(
        link::text_answer("403 Forbidden", "the token is missing or wrong: open the URL that ms-tracepp printed\n"));
  }
  if (path == "/") return guarded({.type = "text/html; charset=utf-8", .body = page_()});
  return guarded({.type = "application/json", .body = std::make_shared<const std::string>(state_())});
}

}  // namespace ms::tracepp
