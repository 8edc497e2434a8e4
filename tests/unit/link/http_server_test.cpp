#include "link/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstring>
#include <list>

namespace ms::link {
namespace {

using testing::AnyOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

// A server on a socket in the abstract namespace, under a name that the kernel chooses.
class Serving : public testing::Test {
 protected:
  Serving() {
    const sa_family_t family = AF_UNIX;
    sockaddr unnamed{.sa_family = family, .sa_data = {}};
    EXPECT_EQ(::bind(listener_.get(), &unnamed, sizeof family), 0);
    EXPECT_EQ(::listen(listener_.get(), 64), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &length_), 0);
  }
  UniqueFd connect() const {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address_), length_), 0);
    return fd;
  }
  static void send(const UniqueFd& fd, std::string_view text) {
    EXPECT_EQ(::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  void serve() {
    server_.serve([this](const HttpRequest& request) {
      asked_.push_back(request.target);
      return text_answer("200 OK", body_);
    });
  }
  // Returns all until the server closes its end; "(open)" where it does not.
  std::string answer(const UniqueFd& fd) {
    std::string text;
    std::array<char, 65536> bytes;
    for (int i = 0; i < 1000; ++i) {
      serve();
      const ssize_t got = ::recv(fd.get(), bytes.data(), bytes.size(), 0);
      if (got == 0) return text;
      if (got < 0 && errno != EAGAIN) return text + "(reset)";
      if (got > 0) text.append(bytes.data(), static_cast<std::size_t>(got));
    }
    return text + "(open)";
  }

  sockaddr_un address_{};
  socklen_t length_ = sizeof address_;
  UniqueFd listener_{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  FakeClock clock_;
  HttpServer server_{listener_.get(), clock_, {.request_s = 5, .answer_s = 60}};
  std::string body_ = "hello\n";
  std::vector<std::string> asked_;
};

TEST_F(Serving, AnswersWhatComesInPieces) {
  const UniqueFd visitor = connect();
  for (const char piece : std::string_view("GET /a?b HTTP/1.1\r\nHost: x\r\n\r")) {
    send(visitor, std::string_view(&piece, 1));
    serve();
  }
  EXPECT_TRUE(asked_.empty());
  send(visitor, "\n");
  const std::string text = answer(visitor);
  EXPECT_THAT(text, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(text, HasSubstr("\r\nContent-Length: 6\r\n"));
  EXPECT_THAT(text, EndsWith("\r\n\r\nhello\n"));
  EXPECT_EQ(asked_, std::vector<std::string>{"/a?b"});
}

TEST_F(Serving, RefusesAllButGet) {
  for (const auto& [request, status] : {std::pair{"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "405"},
                                        {"HEAD / HTTP/1.1\r\n\r\n", "405"},
                                        {"GET /\r\n\r\n", "400"},
                                        {"GET / HTTP/2\r\n\r\n", "400"},
                                        {"x\r\n\r\n", "400"},
                                        {"\r\n\r\n", "400"},
                                        {"GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n", "400"}}) {
    const UniqueFd visitor = connect();
    send(visitor, request);
    EXPECT_THAT(answer(visitor), StartsWith(std::string("HTTP/1.1 ") + status)) << request;
  }
  EXPECT_TRUE(asked_.empty());
}

TEST_F(Serving, ARequestIsBounded) {
  const UniqueFd endless = connect();
  send(endless, std::string(50000, 'x'));
  EXPECT_THAT(answer(endless), StartsWith("HTTP/1.1 431"));
  const UniqueFd long_header = connect();
  send(long_header, "GET / HTTP/1.1\r\nCookie: " + std::string(HttpServer::kMostHead_bytes, 'x') + "\r\n\r\n");
  EXPECT_THAT(answer(long_header), StartsWith("HTTP/1.1 431"));
  EXPECT_TRUE(asked_.empty());
}

TEST_F(Serving, WhoTakesTooLongIsDropped) {
  const UniqueFd slow = connect();
  for (int i = 0; i < 7; ++i) {  // a byte now and then buys no time
    ::send(slow.get(), "x", 1, MSG_NOSIGNAL);
    serve();
    clock_.advance_s(1);
  }
  EXPECT_THAT(answer(slow), AnyOf("", "(reset)"));

  body_ = std::string(8 << 20, 'b');  // more than a socket holds
  const UniqueFd reader = connect();
  send(reader, "GET / HTTP/1.1\r\n\r\n");
  serve();
  clock_.advance_s(61);
  EXPECT_LT(answer(reader).size(), body_.size());

  const UniqueFd in_time = connect();
  send(in_time, "GET / HTTP/1.1\r\n\r\n");
  serve();
  clock_.advance_s(59);
  EXPECT_GT(answer(in_time).size(), body_.size());
}

TEST_F(Serving, SilentVisitorsKeepNobodyOut) {
  body_ = std::string(8 << 20, 'b');
  const UniqueFd reader = connect();
  send(reader, "GET / HTTP/1.1\r\n\r\n");
  serve();
  std::list<UniqueFd> silent;
  for (std::size_t i = 0; i < 3 * HttpServer::kMostOpen; ++i) {
    silent.push_back(connect());
    serve();
  }
  EXPECT_GT(answer(reader).size(), body_.size()) << "its answer was under way";
  EXPECT_EQ(answer(silent.front()), "");
  EXPECT_THAT(answer(silent.back()), EndsWith("(open)"));
}

TEST(HttpRequest, IsRead) {
  const std::optional<HttpRequest> request = parse_http_request("GET /a HTTP/1.1\r\nAccept: */*\r\nhost:  x:80 \r\n");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->method, "GET");
  EXPECT_EQ(request->target, "/a");
  EXPECT_EQ(request->host, "x:80");
  EXPECT_EQ(parse_http_request("GET / HTTP/1.0")->host, "");
  for (const char* head : {"", "GET", "GET /", "GET / FTP/1.1", " "}) EXPECT_FALSE(parse_http_request(head)) << head;
}

}  // namespace
}  // namespace ms::link
