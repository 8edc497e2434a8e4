// A little HTTP server for tests, in a thread: it keeps what it was sent and answers with the bytes it was told to,
// which need not be HTTP, as slowly as it was told to.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ms::notify::support {

struct Answer {
  std::string bytes;
  double before_s = 0;   // waits
  bool endless = false;  // goes on sending 'x' until the other end leaves
};
Answer http_answer(int status, const std::string& body = "ok", const std::string& headers = "");

class HttpServer {
 public:
  HttpServer();
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  void answer_with(Answer answer);            // from now on
  std::vector<std::string> requests() const;  // whole, with headers

 private:
  void serve(const std::stop_token& stop);
  void talk(int socket, const std::stop_token& stop);

  int listener_ = -1;
  int port_ = 0;
  mutable std::mutex mutex_;  // guards answer_, requests_
  Answer answer_;
  std::vector<std::string> requests_;
  std::jthread thread_;  // last: it uses the rest
};

// A listening socket on the loopback and its port.
std::pair<int, int> listen_somewhere();
// A port of this machine that nobody listens on now.
int free_port();
// The body that GET of this path gives; empty where nobody answers.
std::string http_get(int port, const std::string& path);

}  // namespace ms::notify::support
