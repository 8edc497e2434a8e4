#include "http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <stdexcept>

namespace ms::notify::support {
namespace {

constexpr int kTick_ms = 20;

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// Whether the request is whole.
bool complete(const std::string& request) {
  const std::size_t head = request.find("\r\n\r\n");
  if (head == std::string::npos) return false;
  const std::size_t length = request.find("Content-Length: ");
  const std::size_t body = length < head ? std::strtoul(request.c_str() + length + 16, nullptr, 10) : 0;
  return request.size() >= head + 4 + body;
}

bool readable(int socket) {
  pollfd polled{socket, POLLIN, 0};
  return ::poll(&polled, 1, kTick_ms) > 0;
}

}  // namespace

std::pair<int, int> listen_somewhere() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  if (socket < 0 || ::bind(socket, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(socket, 16) != 0 ||
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    throw std::runtime_error("no socket on the loopback");
  }
  return {socket, ntohs(address.sin_port)};
}

Answer http_answer(int status, const std::string& body, const std::string& headers) {
  return {"HTTP/1.1 " + std::to_string(status) + " Words\r\n" + headers +
          "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body};
}

HttpServer::HttpServer() : answer_(http_answer(200)) {
  std::tie(listener_, port_) = listen_somewhere();
  thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

HttpServer::~HttpServer() {
  thread_.request_stop();
  thread_.join();
  ::close(listener_);
}

void HttpServer::answer_with(Answer answer) {
  const std::lock_guard lock(mutex_);
  answer_ = std::move(answer);
}

std::vector<std::string> HttpServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HttpServer::serve(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    if (!readable(listener_)) continue;
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) continue;
    talk(socket, stop);
    ::close(socket);
  }
}

void HttpServer::talk(int socket, const std::stop_token& stop) {
  std::string request;
  std::array<char, 4096> buffer;
  while (!stop.stop_requested() && !complete(request)) {
    if (!readable(socket)) continue;
    const ssize_t got = ::recv(socket, buffer.data(), buffer.size(), 0);
    if (got <= 0) break;
    request.append(buffer.data(), static_cast<std::size_t>(got));
  }
  Answer answer;
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    answer = answer_;
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(answer.before_s);
  while (!stop.stop_requested() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(kTick_ms));
  }
  ::send(socket, answer.bytes.data(), answer.bytes.size(), MSG_NOSIGNAL);
  const std::string more(65536, 'x');
  while (answer.endless && !stop.stop_requested() && ::send(socket, more.data(), more.size(), MSG_NOSIGNAL) > 0) {}
}

int free_port() {
  const auto [socket, port] = listen_somewhere();
  ::close(socket);
  return port;
}

std::string http_get(int port, const std::string& path) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(port);
  std::string reply;
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    const std::string request = "GET " + path + " HTTP/1.0\r\nHost: localhost\r\n\r\n";  // 1.0: not in chunks
    ::send(socket, request.data(), request.size(), MSG_NOSIGNAL);
    std::array<char, 4096> buffer;
    for (ssize_t got = 0; (got = ::recv(socket, buffer.data(), buffer.size(), 0)) > 0;) {
      reply.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  ::close(socket);
  const std::size_t head = reply.find("\r\n\r\n");
  return head == std::string::npos ? "" : reply.substr(head + 4);
}

}  // namespace ms::notify::support
