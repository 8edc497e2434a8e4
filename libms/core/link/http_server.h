// A minimal HTTP server: GET only, one answer per connection. It trusts no client: the size of a request, the time that
// a connection may take and the number of connections are bounded. Never blocks. For one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/handle.h"

namespace ms::link {

struct HttpRequest {
  std::string method, target;  // as they were sent: "GET", "/metrics?job=3"
  std::string host;            // with its port, if it names one; empty: not sent
};
// Returns a request from its head, the lines before the empty one; nullopt where it is no HTTP/1 or names two hosts.
// Pure.
std::optional<HttpRequest> parse_http_request(std::string_view head);

struct HttpAnswer {
  std::string status = "200 OK";
  std::string type = "text/plain; charset=utf-8";
  std::string headers = {};                      // further ones, each with "\r\n"
  std::shared_ptr<const std::string> body = {};  // absent: empty
};
HttpAnswer text_answer(std::string status, std::string body);

struct HttpLimits {
  double request_s = 5;  // for a request
  double answer_s = 5;   // for the other end to take the answer
};

class HttpServer {
 public:
  static constexpr std::size_t kMostOpen = 16;          // a new connection replaces the oldest that asked for nothing
  static constexpr std::size_t kMostHead_bytes = 8192;  // of a request

  // `listener` does not block. It and `clock` outlive the server.
  HttpServer(int listener, Clock& clock, const HttpLimits& limits = {});

  // Takes what has come, and has `answer` answer requests by GET; others are refused with 400, 405 or 431.
  void serve(const std::function<HttpAnswer(const HttpRequest&)>& answer);

 private:
  enum class Stage { asks, is_answered, leaves };
  struct Connection {
    UniqueFd fd;
    double since_s = 0;  // of the stage
    Stage stage = Stage::asks;
    std::string head = {};  // of the request, then of the answer
    std::shared_ptr<const std::string> body = {};
    std::size_t sent_bytes = 0;  // of both
  };
  bool attend(Connection& connection, const std::function<HttpAnswer(const HttpRequest&)>& answer);
  bool receive(Connection& connection) const;
  bool send(Connection& connection) const;
  void enter(Connection& connection, Stage stage) const;

  int listener_;
  Clock& clock_;
  HttpLimits limits_;
  std::list<Connection> connections_;
};

}  // namespace ms::link
