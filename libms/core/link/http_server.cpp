#include "link/http_server.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/text.h"

namespace ms::link {
namespace {

bool comes_later(int err) { return err == EAGAIN || err == EWOULDBLOCK || err == EINTR; }

bool is_header(std::string_view line, std::string_view name) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return line.size() > name.size() && line[name.size()] == ':' &&
         std::ranges::equal(line.substr(0, name.size()), name, {}, lower, lower);
}

HttpAnswer answer_to(std::string_view head, const std::function<HttpAnswer(const HttpRequest&)>& answer) {
  const std::optional<HttpRequest> request = parse_http_request(head);
  if (!request) return text_answer("400 Bad Request", "not a request of HTTP/1\n");
  if (request->method != "GET") {
    HttpAnswer refusal = text_answer("405 Method Not Allowed", "only GET is answered\n");
    refusal.headers = "Allow: GET\r\n";
    return refusal;
  }
  return answer(*request);
}

}  // namespace

std::optional<HttpRequest> parse_http_request(std::string_view head) {
  constexpr std::string_view kEnd = "\r\n";
  std::string_view line = head.substr(0, head.find(kEnd));
  head.remove_prefix(std::min(head.size(), line.size() + kEnd.size()));
  const std::size_t first = line.find(' '), second = line.rfind(' ');
  if (first == std::string_view::npos || first == second || !line.substr(second + 1).starts_with("HTTP/1."))
    return std::nullopt;
  HttpRequest request{.method = std::string(line.substr(0, first)),
                      .target = std::string(line.substr(first + 1, second - first - 1)),
                      .host = {}};
  while (!head.empty()) {
    line = head.substr(0, head.find(kEnd));
    head.remove_prefix(std::min(head.size(), line.size() + kEnd.size()));
    if (!is_header(line, "host")) continue;
    if (!request.host.empty()) return std::nullopt;
    request.host = trim(line.substr(std::string_view("host:").size()));
  }
  return request;
}

HttpAnswer text_answer(std::string status, std::string body) {
  return {.status = std::move(status), .body = std::make_shared<const std::string>(std::move(body))};
}

HttpServer::HttpServer(int listener, Clock& clock, const HttpLimits& limits)
    : listener_(listener), clock_(clock), limits_(limits) {}

void HttpServer::serve(const std::function<HttpAnswer(const HttpRequest&)>& answer) {
  for (std::size_t i = 0; i < kMostOpen; ++i) {
    UniqueFd fd(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) break;
    if (connections_.size() == kMostOpen) {
      const auto silent = std::ranges::find(connections_, Stage::asks, &Connection::stage);
      connections_.erase(silent == connections_.end() ? connections_.begin() : silent);
    }
    connections_.push_back({.fd = std::move(fd), .since_s = clock_.now_s()});
  }
  connections_.remove_if([&](Connection& connection) { return !attend(connection, answer); });
}

// Returns whether the connection stays.
bool HttpServer::attend(Connection& connection, const std::function<HttpAnswer(const HttpRequest&)>& answer) {
  const double limit_s = connection.stage == Stage::is_answered ? limits_.answer_s : limits_.request_s;
  if (clock_.now_s() - connection.since_s > limit_s) return false;
  if (connection.stage != Stage::is_answered && !receive(connection)) return false;
  if (connection.stage == Stage::asks) {
    const std::size_t end = connection.head.find("\r\n\r\n");
    const bool is_whole = end != std::string::npos && end <= kMostHead_bytes;
    if (!is_whole && connection.head.size() <= kMostHead_bytes) return true;
    const HttpAnswer given = is_whole ? answer_to(std::string_view(connection.head).substr(0, end), answer)
                                      : text_answer("431 Request Header Fields Too Large", "the request is too long\n");
    connection.head =
        fmt::format("HTTP/1.1 {}\r\nContent-Type: {}\r\n{}Content-Length: {}\r\nConnection: close\r\n\r\n",
                    given.status, given.type, given.headers, given.body ? given.body->size() : 0);
    connection.body = given.body;
    enter(connection, Stage::is_answered);
  }
  return connection.stage != Stage::is_answered || send(connection);
}

// Takes what there is; behind a request nothing counts, but it is taken, because closing before that would take the
// answer back. Returns whether the other end is there.
bool HttpServer::receive(Connection& connection) const {
  char chunk[4096];
  constexpr std::size_t kMostChunks = 16;  // at once
  for (std::size_t i = 0; i < kMostChunks; ++i) {
    const ssize_t got = ::recv(connection.fd.get(), chunk, sizeof chunk, 0);
    if (got <= 0) return got < 0 && comes_later(errno);
    if (connection.stage != Stage::asks) continue;
    connection.head.append(chunk, static_cast<std::size_t>(got));
    if (connection.head.size() > kMostHead_bytes || connection.head.find("\r\n\r\n") != std::string::npos) return true;
  }
  return true;
}

// Sends as much as fits. Returns whether the other end takes it.
bool HttpServer::send(Connection& connection) const {
  const std::string_view body = connection.body ? std::string_view(*connection.body) : std::string_view();
  while (connection.sent_bytes < connection.head.size() + body.size()) {
    const std::string_view part = connection.sent_bytes < connection.head.size()
                                      ? std::string_view(connection.head).substr(connection.sent_bytes)
                                      : body.substr(connection.sent_bytes - connection.head.size());
    const ssize_t sent = ::send(connection.fd.get(), part.data(), part.size(), MSG_NOSIGNAL);
    if (sent < 0) return comes_later(errno);
    connection.sent_bytes += static_cast<std::size_t>(sent);
  }
  ::shutdown(connection.fd.get(), SHUT_WR);
  enter(connection, Stage::leaves);
  return true;
}

void HttpServer::enter(Connection& connection, Stage stage) const {
  connection.stage = stage;
  connection.since_s = clock_.now_s();
}

}  // namespace ms::link
